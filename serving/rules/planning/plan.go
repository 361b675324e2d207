package planning

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Plan is a partition of the applications into groups with their configurations.
type Plan struct {
	Groups     []Group      `json:"groups"`
	Infeasible []Infeasible `json:"infeasible,omitempty"` // applications for which no configuration is fast enough
	Cost       Cost         `json:"nanoPerSecond"`        // of all groups
}

// Infeasible is an application whose SLO no configuration meets, and the reason, which names the smallest feasible SLO.
type Infeasible struct {
	Application Application `json:"application"`
	Reason      string      `json:"reason"`
}

// Err returns a *share.FieldError that names the SLO to change.
func (i Infeasible) Err() error {
	return &share.FieldError{Field: "applications." + i.Application.Name + ".slo", Reason: i.Reason}
}

// groupFunc is a function that partitions the applications of one model into groups. The applications are feasible and sorted by
// urgency.
type groupFunc func(o *options, sorted []Application) []Group

// Best returns the plan with the least cost per second. It is optimal if no model has more than exactLimit applications. Otherwise it is
// at least as cheap as every plan whose groups are contiguous in the order of urgency, as PAMBA's are, and moving any single application
// does not make it cheaper. Errors are *share.FieldError.
func Best(in Input) (Plan, error) { return solve(in, in.Modes, byCost) }

func byCost(o *options, sorted []Application) []Group { return cheapest(o, sorted) }

func solve(in Input, modes []Mode, divide groupFunc) (Plan, error) {
	if err := in.Validate(); err != nil {
		return Plan{}, err
	}
	var plan Plan
	for _, name := range in.modelNames() {
		o := newOptions(in.model(name), &in, modes)
		feasible := plan.addInfeasible(o, in.applicationsOf(name))
		if len(feasible) > 0 {
			plan.Groups = append(plan.Groups, divide(o, feasible)...)
		}
	}
	for i := range plan.Groups {
		plan.Cost += plan.Groups[i].Cost
	}
	return plan, nil
}

// modelNames returns the names of the models that applications use. Only applications of one model can share a deployment.
func (in *Input) modelNames() []string {
	var names []string
	for _, a := range in.Applications {
		names = append(names, a.Model)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (in *Input) applicationsOf(model string) []Application {
	var own []Application
	for _, a := range in.Applications {
		if a.Model == model {
			own = append(own, a)
		}
	}
	slices.SortFunc(own, compareUrgency)
	return own
}

// addInfeasible adds the applications whose SLO no configuration meets to Plan.Infeasible, and returns the feasible ones.
func (p *Plan) addInfeasible(o *options, sorted []Application) []Application {
	var feasible []Application
	for _, a := range sorted {
		if o.provision(newDemand([]Application{a})).feasible() {
			feasible = append(feasible, a)
			continue
		}
		p.Infeasible = append(p.Infeasible, Infeasible{a, o.infeasibleReason(a)})
	}
	return feasible
}

func (o *options) infeasibleReason(a Application) string {
	if least := o.tightestSLO(); !math.IsInf(float64(least), 1) {
		return fmt.Sprintf("%g s is less than the %.4g s that %.64q can promise", float64(a.SLO), float64(least), a.Model)
	}
	return fmt.Sprintf("%.64q fits into nothing that the platform sells", a.Model)
}

// tightestSLO returns the smallest SLO, in seconds, that the model can meet; it is infinite if the model fits no configuration.
func (o *options) tightestSLO() profile.Seconds {
	least := profile.Seconds(math.Inf(1))
	if len(o.byBatch) > 0 && len(o.byBatch[0]) > 0 {
		least = o.byBatch[0][0].latency.P99
	}
	for _, h := range o.reserved {
		least = min(least, h.reply)
	}
	return least
}

// PerRequest returns the mean cost of a request, for display only: costs per request of different groups cannot be compared or added
// up.
func (g *Group) PerRequest() Cost { return g.Cost / Cost(cmp.Or(g.Rate(), 1)) }

// Frontier returns the cheapest configuration of one application of a model for each SLO (first index) and rate (second index). A group
// without a mode is infeasible.
func Frontier(in Input, model string, slos []profile.Seconds, rates []float64) ([][]Group, error) {
	if err := in.Validate(); err != nil {
		return nil, err
	}
	if in.model(model) == nil {
		return nil, share.Invalid("model", "there is no profile of %.64q", model)
	}
	o := newOptions(in.model(model), &in, in.Modes)
	frontier := make([][]Group, len(slos))
	for i, slo := range slos {
		for _, rate := range rates {
			a := Application{Name: "one", Model: model, SLO: slo, Rate: rate}
			if err := a.validate(); err != nil {
				return nil, err
			}
			own := []Application{a}
			frontier[i] = append(frontier[i], newGroup(own, o.provision(newDemand(own))))
		}
	}
	return frontier, nil
}
