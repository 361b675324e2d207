package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/internal/chart"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/vgpu/planning"
)

const planLong = `plan reads applications (model, latency objective, rate), latency profiles of their models and a price list, and says at least
cost which applications run together, in which mode, on what, and in batches of what size.

Modes:
  cpu          the whole model in one function on vCPUs
  gpu          the whole model in one function with some GB of a GPU
  partitioned  the model cut into stages of functions on vCPUs
  share        the whole model on gshare shares, which are held and paid for whether busy or not

Policies:
  gshare        the cheapest grouping, exact up to 10 applications of a model
  pamba         PAMBA's two phases of merges, corrected, over the same modes
  harmonybatch  HarmonyBatch's merges, over cpu and gpu

Nothing is started. The exit code is 1 if an application cannot be served in time; the others are still planned.`

// planFlags is gshare plan, and its input.
type planFlags struct {
	applications, profiles, prices string
	policy, modes                  string
	output, plot, model            string

	input planning.Input
}

// planners are the values of --policy.
var planners = []struct {
	name string
	plan func(planning.Input) (planning.Plan, error)
}{{"gshare", planning.Best}, {"pamba", planning.Phases}, {"harmonybatch", planning.HarmonyBatch}}

func planCommand() *cobra.Command {
	p := &planFlags{}
	cmd := &cobra.Command{
		Use: "plan", Short: "Plan modes, groups and batches of applications at least cost", Long: planLong, Args: cobra.NoArgs,
		Example: "  gshare plan --applications applications.yaml --profiles profiles.yaml --prices prices.yaml\n" +
			"  gshare plan --applications a.json --profiles p.json --prices prices.yaml --policy all -o json --plot frontier.svg",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return cli.Usage(err)
			}
			plans, err := p.run()
			if err != nil {
				return cli.Usage(err)
			}
			return errors.Join(p.write(cmd.OutOrStdout(), plans), unserved(plans))
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.applications, "applications", "", "file (YAML or JSON): applications with name, model, slo in seconds, rate per second")
	f.StringVar(&p.profiles, "profiles", "", "file: models with the latency models of their modes")
	f.StringVar(&p.prices, "prices", "", "file: prices in nano-units, and the sizes that the platform sells if they are not the usual ones")
	f.StringVar(&p.policy, "policy", "gshare", "comma-separated list, or all: gshare, pamba, harmonybatch")
	f.StringVar(&p.modes, "modes", "all", "modes that may be used, comma-separated: cpu, gpu, partitioned, share")
	f.StringVarP(&p.output, "output", "o", "table", "json or table")
	f.StringVar(&p.plot, "plot", "", "draw the cheapest mode over SLO and rate into this file (.svg or .png)")
	f.StringVar(&p.model, "model", "", "model to draw (default: that of the first application)")
	return cmd
}

func (p *planFlags) check() error {
	switch {
	case p.output != "json" && p.output != "table":
		return fmt.Errorf("--output: %q is neither json nor table", p.output)
	case p.plot != "" && !chart.Known(p.plot):
		return fmt.Errorf("--plot: %q ends neither in .svg nor in .png", p.plot)
	}
	for _, name := range p.policies() {
		if plannerOf(name) == nil {
			return fmt.Errorf("--policy: %q is none of gshare, pamba, harmonybatch", name)
		}
	}
	if err := p.read(); err != nil {
		return err
	}
	p.model = cmp.Or(p.model, p.input.Applications[0].Model)
	if len(p.dots()) == 0 {
		return fmt.Errorf("--model: no application uses %q", p.model)
	}
	return nil
}

func (p *planFlags) policies() []string {
	if p.policy != "all" {
		return strings.Split(p.policy, ",")
	}
	var names []string
	for _, x := range planners {
		names = append(names, x.name)
	}
	return names
}

func plannerOf(name string) func(planning.Input) (planning.Plan, error) {
	for _, x := range planners {
		if x.name == name {
			return x.plan
		}
	}
	return nil
}

// policyPlan is the plan of one policy.
type policyPlan struct {
	Policy string `json:"policy"`
	planning.Plan
}

func (p *planFlags) run() ([]policyPlan, error) {
	var plans []policyPlan
	for _, name := range p.policies() {
		plan, err := plannerOf(name)(p.input)
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", name, err)
		}
		plans = append(plans, policyPlan{name, plan})
	}
	return plans, nil
}

// unserved is an error if a plan leaves applications out.
func unserved(plans []policyPlan) error {
	var all []error
	for _, p := range plans {
		for _, x := range p.Infeasible {
			all = append(all, fmt.Errorf("policy %s: %w", p.Policy, x.Err()))
		}
	}
	return errors.Join(all...)
}
