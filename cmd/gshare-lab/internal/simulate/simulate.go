// Package simulate is gshare-lab simulate: gshare's rules beside published policies, on traces and generated loads.
package simulate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gshare-dev/gshare/cmd/gshare-lab/internal/report"
	"github.com/gshare-dev/gshare/cmd/internal/chart"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
)

// Command returns the command gshare-lab simulate with a subcommand for each experiment.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Compare gshare's rules with published ones on traces and generated loads",
		Long: "Run the rules of gshare's scheduler and node agent, and published policies, on simulated clusters and GPUs. The results\n" +
			"depend only on the inputs and the seed, except for speeds.",
	}
	for _, s := range simulations() {
		cmd.AddCommand(s.command())
	}
	return cmd
}

func simulations() []*simulation {
	return []*simulation{simulateCluster(), simulateBound(), simulateRebalance(), simulateShapes(), simulateEvents(), simulateMIG(), simulateDelivery(), simulateElastic(), simulateServing(), simulateUnseen()}
}

// simulation is an experiment, a subcommand of gshare-lab simulate, that compares policies over several random seeds.
type simulation struct {
	name, short, long, example string
	policies                   []string             // values of --policy; the first is the default
	variants                   []string             // more values of --policy, which all does not include
	flags                      func(*pflag.FlagSet) // adds the experiment's own flags
	prepare                    func() error         // checks flags and reads files, once; its errors are usage errors
	run                        func(ctx context.Context, policy string, seed uint64) ([]report.Figure, error)
	chart                      func([]report.Summary) *chart.Chart // draws the summaries of all runs; nil if the experiment has no chart

	policy, output, plot string
	seed                 uint64
	runs                 int
}

// command returns the experiment's cobra command.
func (s *simulation) command() *cobra.Command {
	cmd := &cobra.Command{
		Use: s.name, Short: s.short, Long: s.long, Example: s.example, Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			policies, err := s.validate()
			if err != nil {
				return cli.Usage(err)
			}
			summaries, err := s.runAll(cmd.Context(), policies)
			if err != nil {
				return err
			}
			if err := report.Write(cmd.OutOrStdout(), s.output, summaries); err != nil || s.plot == "" {
				return err
			}
			if err := s.chart(summaries).WriteFile(s.plot); err != nil {
				return fmt.Errorf("--plot: %w", err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	s.flags(f)
	f.StringVar(&s.policy, "policy", s.policies[0], "comma-separated list of "+strings.Join(slices.Concat(s.policies, s.variants), ", ")+"; or all"+s.butVariants())
	f.Uint64Var(&s.seed, "seed", 1, "seed of the first run")
	f.IntVar(&s.runs, "runs", 1, "number of runs, with consecutive seeds from --seed; prints means and standard deviations")
	f.StringVarP(&s.output, "output", "o", "table", "output format: json or table")
	if s.chart != nil {
		f.StringVar(&s.plot, "plot", "", "also write a chart to this .svg or .png file")
	}
	return cmd
}

// validate checks the flags, reads the inputs, and returns the policies selected by --policy.
func (s *simulation) validate() ([]string, error) {
	policies, err := s.chosen()
	switch {
	case err != nil:
		return nil, err
	case s.output != "json" && s.output != "table":
		return nil, fmt.Errorf("--output: unknown format %q: must be json or table", s.output)
	case s.runs < 1:
		return nil, fmt.Errorf("--runs: must be positive, got %d", s.runs)
	}
	if err := chart.Check(s.plot); err != nil {
		return nil, fmt.Errorf("--plot: %w", err)
	}
	return policies, s.prepare()
}

// butVariants returns, for the help of --policy, which values all stands for if it does not include every value.
func (s *simulation) butVariants() string {
	if len(s.variants) == 0 {
		return ""
	}
	return ", which are those up to " + s.policies[len(s.policies)-1]
}

func (s *simulation) chosen() ([]string, error) {
	if s.policy == "all" {
		return s.policies, nil
	}
	policies := strings.Split(s.policy, ",")
	for _, p := range policies {
		if known := slices.Concat(s.policies, s.variants); !slices.Contains(known, p) {
			return nil, fmt.Errorf("--policy: unknown value %q: must be one of %s", p, strings.Join(known, ", "))
		}
	}
	return policies, nil
}

// runAll runs every policy with every seed and returns a summary for each policy. Runs are sequential, so that they do not distort each
// other's measured speed.
func (s *simulation) runAll(ctx context.Context, policies []string) ([]report.Summary, error) {
	bar := cli.NewBar("simulate "+s.name, len(policies)*s.runs)
	defer bar.Clear()
	var out []report.Summary
	for _, policy := range policies {
		summary := report.Summary{Policy: policy}
		for i := range s.runs {
			seed := s.seed + uint64(i)
			bar.Note(fmt.Sprintf("%s, seed %d", policy, seed))
			figures, err := s.run(ctx, policy, seed)
			if err != nil {
				return nil, fmt.Errorf("policy %s, seed %d: %w", policy, seed, err)
			}
			summary.Add(seed, figures)
			bar.Add()
		}
		out = append(out, summary)
	}
	return out, nil
}

// sweep holds a line for each policy, with a figure at each value of an input. add sums the figure over the random seeds.
type sweep map[string]*chart.Line

// add adds one seed's figure at each value of x to a policy's line.
func (s sweep) add(policy string, x []float64, figure func(x float64) (float64, error)) error {
	line := s[policy]
	if line == nil {
		line = &chart.Line{Name: policy, Points: make([]chart.Point, len(x))}
		s[policy] = line
	}
	for i := range x {
		y, err := figure(x[i])
		if err != nil {
			return err
		}
		line.Points[i].X = x[i]
		line.Points[i].Y += y
	}
	return nil
}

// lines divides the sums by the number of seeds and returns the lines in the order of the summaries. It must be called only once.
func (s sweep) lines(summaries []report.Summary) (lines []chart.Line) {
	for _, summary := range summaries {
		line := *s[summary.Policy]
		for i := range line.Points {
			line.Points[i].Y /= float64(len(summary.Runs))
		}
		lines = append(lines, line)
	}
	return lines
}
