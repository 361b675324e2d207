// Package cut is gshare-lab cut: it cuts a function that the Python package gshare has measured into stages that run on given slices.
package cut

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const long = `Cut a function into the stages that suit the given slices best, and print which nodes run on which slice, in the format that gshare.run of
the Python package reads. If one slice can serve the whole function, it is not cut. Otherwise the stages are those whose times are most alike
(FluidFaaS). Every stage fits in the memory of its slice, and a request that runs every node is complete within the SLO.

The exit code is 1 if no cut fits.`

// options are the flags of gshare-lab cut.
type options struct {
	build  string
	slices []string
	batch  int
	demand pipeline.Demand
}

// Command returns the command gshare-lab cut.
func Command() *cobra.Command {
	o := &options{}
	cmd := &cobra.Command{
		Use: "cut", Short: "Cut a measured function into stages on slices", Long: long, Args: cli.NoArgs,
		Example: "  gshare-lab cut --build images.json --slo 500ms --slice MIG-a=1g.10gb --slice MIG-b=2g.20gb >stages.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			layout, assignment, err := o.run()
			if err != nil {
				return err
			}
			cmd.PrintErrf("%d slices, %v a request, %.1f requests/s\n", assignment.Partition.Slices(), assignment.Latency, assignment.Rate())
			e := json.NewEncoder(cmd.OutOrStdout())
			e.SetIndent("", "  ")
			return e.Encode(layout)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.build, "build", "", "build file of the function (required)")
	f.StringArrayVar(&o.slices, "slice", nil, "free slice as ID=PROFILE, with its ID for CUDA_VISIBLE_DEVICES and its MIG profile, "+
		"or as ID=KIND:MEMORY for other kinds, such as a=cpu:8Gi; can be repeated")
	f.DurationVar(&o.demand.SLO, "slo", time.Second, "maximum latency of a request")
	f.Float64Var(&o.demand.Rate, "rate", 0, "requests per second that the stages must sustain; 0 for any")
	f.IntVar(&o.demand.Candidates, "candidates", 4, "number of fitting cuts to compare")
	f.IntVar(&o.batch, "batch", 1, "items per request; must be one of the measured batch sizes")
	return cmd
}

func (o *options) run() (pipeline.Layout, pipeline.Assignment, error) {
	function, free, err := o.read()
	if err != nil {
		return pipeline.Layout{}, pipeline.Assignment{}, cli.Usage(err)
	}
	var kinds []pipeline.Kind
	seen := map[pipeline.Kind]bool{}
	for _, s := range free {
		if !seen[s.Kind] {
			kinds, seen[s.Kind] = append(kinds, s.Kind), true
		}
	}
	ranking, err := pipeline.Rank(function, kinds)
	if err != nil {
		return pipeline.Layout{}, pipeline.Assignment{}, err
	}
	assignment, err := ranking.Assign(free, o.demand)
	if err != nil {
		return pipeline.Layout{}, pipeline.Assignment{}, ofFlag(err)
	}
	return ranking.Layout(assignment), assignment, nil
}

// read returns the function at the batch, and the free slices.
func (o *options) read() (pipeline.Function, []pipeline.Slice, error) {
	var free []pipeline.Slice
	for _, text := range o.slices {
		s, err := parseSlice(text)
		if err != nil {
			return pipeline.Function{}, nil, err
		}
		free = append(free, s)
	}
	if o.build == "" {
		return pipeline.Function{}, nil, errors.New("--build is required")
	}
	text, err := os.ReadFile(o.build)
	if err != nil {
		return pipeline.Function{}, nil, fmt.Errorf("--build: %w", err)
	}
	b, err := pipeline.ReadBuild(text)
	if err != nil {
		return pipeline.Function{}, nil, fmt.Errorf("--build: %s: %w", o.build, err)
	}
	f, err := b.Function(o.batch)
	return f, free, ofFlag(err)
}

// ofFlag returns an error about a field that a flag of the same name sets as a usage error that names the flag, and others as they are.
func ofFlag(err error) error {
	if field := (*share.FieldError)(nil); errors.As(err, &field) && slices.Contains([]string{"batch", "candidates", "rate", "slo"}, field.Field) {
		return cli.Usagef("--%w", err)
	}
	return err
}

// parseSlice parses ID=PROFILE or ID=KIND:MEMORY.
func parseSlice(text string) (pipeline.Slice, error) {
	id, name, ok := strings.Cut(text, "=")
	if !ok || id == "" || name == "" {
		return pipeline.Slice{}, fmt.Errorf("--slice: %.64q is not ID=PROFILE, such as MIG-a=1g.10gb", text)
	}
	if name, size, sized := strings.Cut(name, ":"); sized {
		mib, err := share.ParseMemorySize(size)
		if err != nil || mib == nil {
			return pipeline.Slice{}, fmt.Errorf("--slice: %.64q has no memory such as 8Gi", text)
		}
		return pipeline.Slice{ID: id, Kind: pipeline.Kind{Name: name, Compute: 1, Memory: share.Bytes(*mib) * share.MiB}}, nil
	}
	for _, m := range mig.Models() {
		if p, known := m.Profile(name); known { // profiles of the same name have the same compute and memory on all models
			return pipeline.Slice{ID: id, Kind: pipeline.KindOf(p)}, nil
		}
	}
	return pipeline.Slice{}, fmt.Errorf("--slice: %.64q is no MIG profile; of another kind, say its memory, such as a=cpu:8Gi", name)
}
