package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/internal/chart"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
	"github.com/gshare-dev/gshare/serving/rules/planning"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const planLong = `Plan the cheapest way to serve applications within their latency objectives.

plan reads applications (model, latency objective, request rate), latency profiles of their models, and prices. For each group of
applications that is served together, it prints the mode, the resources, the batch size and the cost.

--profiles accepts files of three forms:
  models        a list of latency models, of any mode. It takes precedence where it names the model.
  GPUProfiles   the output of "kubectl get gpuprofiles -A -o yaml". A model is the name or namespace/name of a GPUProfile. A GPUProfile
                that is Stale is used, and a note says so.
  measurements  what gshare profile saves as NAME.profile.json or prints with -o json: one model, with the name of its function.

The last two contain latencies on shares only, for windows of 100 ms, with the batch and the memory that they recommend.

Modes:
  cpu          the whole model in one function on vCPUs
  gpu          the whole model in one function with some GB of a GPU
  partitioned  the model cut into stages of functions on vCPUs
  share        the whole model on gshare shares, which are billed whether they are busy or not

Policies:
  gshare        the cheapest groups; exact for up to 10 applications of a model
  pamba         the groups of PAMBA's two phases
  harmonybatch  the groups of HarmonyBatch, with the modes cpu and gpu only

plan starts nothing. If an application cannot meet its objective, the others are planned and the exit code is 1.`

// planFlags holds the flags of gshare plan and the input read from its files.
type planFlags struct {
	applications, prices string
	profiles             []string
	policy, modes        string
	plot, model          string
	format               output.Format

	input planning.Input
	notes []string // on which measurements the plan is based, and how models are partitioned
}

// planners holds the planning functions by the value of --policy that selects them.
var planners = []struct {
	name string
	plan func(planning.Input) (planning.Plan, error)
}{{"gshare", planning.Best}, {"pamba", planning.Phases}, {"harmonybatch", planning.HarmonyBatch}}

var _ = beforeSharing.add(planCommand)

func planCommand() *cobra.Command {
	p := &planFlags{}
	cmd := &cobra.Command{
		Use: "plan", Short: "Plan the cheapest way to serve applications within their latency objectives", Long: planLong, Args: cli.NoArgs,
		Example: "  gshare plan --applications applications.yaml --profiles profiles.yaml --prices prices.yaml\n" +
			"  gshare plan --applications a.json --profiles p.json --prices prices.yaml --policy all -o json --plot frontier.svg\n" +
			"  gshare plan --applications applications.yaml --profiles gpuprofiles.yaml,resnet50.profile.json --prices prices.yaml",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.check(); err != nil {
				return cli.Usage(err)
			}
			plans, err := p.run()
			if err != nil {
				return cli.Usage(err)
			}
			return errors.Join(p.write(cmd.OutOrStdout(), plans), infeasibleError(plans))
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.applications, "applications", "", "YAML or JSON file with a list applications: of name, model, slo (such as 69ms), rate (requests per second)")
	f.StringSliceVar(&p.profiles, "profiles", nil, "YAML or JSON files of latency models, of GPUProfiles, or of measurements by gshare profile")
	f.StringVar(&p.prices, "prices", "", "YAML or JSON file of prices (in billionths of the currency) and, optionally, of the sizes that the platform sells")
	f.StringVar(&p.policy, "policy", "gshare", "comma-separated list of gshare, pamba, harmonybatch; or all")
	f.StringVar(&p.modes, "modes", "all", "comma-separated list of cpu, gpu, partitioned, share; or all")
	p.format.AddTo(cmd)
	f.StringVar(&p.plot, "plot", "", "also write a chart of the cheapest mode by SLO and rate to this .svg or .png file")
	f.StringVar(&p.model, "model", "", "model to draw in the chart (default: the model of the first application)")
	return cmd
}

func (p *planFlags) check() error {
	if err := chart.Check(p.plot); err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	for _, name := range p.selectedPolicies() {
		if plannerOf(name) == nil {
			return fmt.Errorf("--policy: unknown policy %q: must be gshare, pamba or harmonybatch", name)
		}
	}
	if err := p.read(); err != nil {
		return err
	}
	p.model = cmp.Or(p.model, p.input.Applications[0].Model)
	if len(p.applicationPoints()) == 0 {
		return fmt.Errorf("--model: no application uses model %q", p.model)
	}
	return nil
}

// selectedPolicies returns the names of the planning policies selected by --policy.
func (p *planFlags) selectedPolicies() []string {
	if p.policy != "all" {
		return strings.Split(p.policy, ",")
	}
	var names []string
	for _, x := range planners {
		names = append(names, x.name)
	}
	return names
}

// plannerOf returns the planning function of the policy with this name, or nil if there is none.
func plannerOf(name string) func(planning.Input) (planning.Plan, error) {
	for _, x := range planners {
		if x.name == name {
			return x.plan
		}
	}
	return nil
}

// policyPlan is the plan that one policy made, with the policy's name.
type policyPlan struct {
	Policy string `json:"policy"`
	planning.Plan
}

// run computes a plan with each selected policy.
func (p *planFlags) run() ([]policyPlan, error) {
	var plans []policyPlan
	for _, name := range p.selectedPolicies() {
		plan, err := plannerOf(name)(p.input)
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", name, err)
		}
		plans = append(plans, policyPlan{name, plan})
	}
	return plans, nil
}

// infeasibleError returns the joined errors of the applications for which a policy found no feasible plan, or nil if there is none.
func infeasibleError(plans []policyPlan) error {
	var all []error
	for _, p := range plans {
		for _, x := range p.Infeasible {
			all = append(all, fmt.Errorf("policy %s: %w", p.Policy, x.Err()))
		}
	}
	return errors.Join(all...)
}

func (p *planFlags) write(out io.Writer, plans []policyPlan) error {
	document := struct {
		Currency string       `json:"currency"`
		Plans    []policyPlan `json:"plans"`
		Notes    []string     `json:"notes,omitempty"`
	}{p.input.Prices.Currency, plans, p.notes}
	err := p.format.Write(out, document, func(w io.Writer) error { return p.writeTable(w, plans) })
	if err == nil && p.plot != "" {
		err = p.writeChart()
	}
	return err
}

func (p *planFlags) writeTable(out io.Writer, plans []policyPlan) error {
	currency := strings.ToUpper(p.input.Prices.Currency)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "POLICY\tMODEL\tAPPLICATIONS\tMODE\tON\tBATCH\tP99\tRATE\t%s/HOUR\t%s/MILLION\n", currency, currency)
	for _, plan := range plans {
		for i := range plan.Groups {
			g := &plan.Groups[i]
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%d\t%.0f ms\t%.4g/s\t%.4f\t%.4f\n", plan.Policy, g.Applications[0].Model, applicationNames(g.Applications),
				g.Config.Mode, g.Config, g.Config.Batch, 1e3*g.P99, g.Rate(), perHour(g.Cost), float64(g.PerRequest())/1e3)
		}
		fmt.Fprintf(t, "%s\tall\t\t\t\t\t\t\t%.4f\t\n", plan.Policy, perHour(plan.Cost))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, note := range p.notes {
		fmt.Fprintln(out, note)
	}
	for _, warning := range p.tight(plans) {
		fmt.Fprintln(out, "warning:", warning)
	}
	return nil
}

// maxCounted is the largest planned number of replicas for which tight warns: with more, one replica is less than a tenth of the cost.
const maxCounted = 16

// tight warns about groups that will have more replicas than planned, because gshare scales by the requests in each second, and half of the
// seconds have more than the mean. It assumes that a replica answers what gshare profile would find from the latency profile.
func (p *planFlags) tight(plans []policyPlan) (warnings []string) {
	for _, plan := range plans {
		for i := range plan.Groups {
			g := &plan.Groups[i]
			if g.Config.Mode != planning.Share || g.Config.Instances < 1 || g.Config.Instances > maxCounted {
				continue
			}
			at := slices.IndexFunc(p.input.Models, func(m profile.Model) bool { return m.Name == g.Applications[0].Model })
			answers := g.Capacity(&p.input.Models[at])
			c := scaling.Configuration{
				Share: share.Share{SMRequest: g.Config.SM, SMLimit: g.Config.SM, QuotaRequest: g.Config.Quota, QuotaLimit: g.Config.Quota, Memory: g.Config.Memory},
				Batch: 1, Throughput: scaling.Rate(answers),
			}
			expected, err := scaling.Expected(scaling.Policy{Min: 1, Max: 10 * maxCounted, Predict: scaling.Kalman}, c, scaling.Rate(g.Rate()))
			if more := int(math.Round(expected)) - g.Config.Instances; err == nil && more > 0 {
				warnings = append(warnings, fmt.Sprintf("policy %s: %s: with requestsPerSecond %.3g, %.3g requests/s that come at random keep %.2g replicas, where %d would answer them by the latencies: that costs %.4f %s/h more",
					plan.Policy, applicationNames(g.Applications), answers, g.Rate(), expected, g.Config.Instances,
					perHour(g.Cost)*float64(more)/float64(g.Config.Instances), strings.ToUpper(p.input.Prices.Currency)))
			}
		}
	}
	return warnings
}

// perHour converts a cost in billionths of the price unit per second to price units per hour.
func perHour(c planning.Cost) float64 { return float64(c) * 3600 / 1e9 }

// applicationNames returns the names of the first four applications and the number of the others, as text.
func applicationNames(applications []planning.Application) string {
	const most = 4
	var all []string
	for i, a := range applications {
		if i == most {
			all = append(all, fmt.Sprintf("%d more", len(applications)-most))
			break
		}
		all = append(all, a.Name)
	}
	return strings.Join(all, ", ")
}
