package planning

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/profile"
)

// Basis is what a plan is made of. A plan for another basis may differ.
type Basis struct {
	// Data identifies everything but the applications: modes, latency models, prices, rates that somebody
	// has set. A change counts at once.
	Data         string
	Applications map[string]Observed // by name
}

// Observed is what is known of an application. A rate of zero means that it gets no requests, and is in no group.
type Observed struct {
	SLO  profile.Seconds
	Rate float64 // requests a second, a mean over ReplanRule.After at least
}

// ReplanRule says when to plan again, and when to change a plan. It has two kinds of hysteresis: a rate has to differ by much for long
// before anything is planned, and a plan is replaced only by one that is cheaper by enough.
type ReplanRule struct {
	Drift  float64       // part by which a rate has to differ from the planned one
	After  time.Duration // for which it has to; peaks that are shorter do not count
	Saving float64       // part of the cost that another plan has to save
}

// Drift finds out when to plan again. Its zero value is ready to use.
type Drift struct {
	since time.Time // when a rate began to differ; zero if none does
}

// Due returns why to plan again now, or an empty text. planned is the basis of the plan that is there, observed the present one. Due has to
// be called from time to time, with observations at the times now.
func (d *Drift) Due(r ReplanRule, planned, observed Basis, now time.Time) string {
	if why := planned.changed(observed); why != "" {
		d.since = time.Time{}
		return why
	}
	why := r.drifted(planned, observed)
	switch {
	case why == "":
		d.since = time.Time{}
	case d.since.IsZero():
		d.since = now
	}
	if why == "" || now.Sub(d.since) < 2*r.After { // a peak of the length After is part of a mean over After for twice as long
		return ""
	}
	d.since = time.Time{}
	return why
}

// changed returns what somebody has changed, which is no matter of degrees.
func (b Basis) changed(now Basis) string {
	if b.Data != now.Data {
		return "the modes, profiles, prices or given rates have changed"
	}
	for _, name := range sortedNames(b.Applications, now.Applications) {
		before, had := b.Applications[name]
		after, has := now.Applications[name]
		switch {
		case !had:
			return fmt.Sprintf("%.64s was added", name)
		case !has:
			return fmt.Sprintf("%.64s was removed", name)
		case before.SLO != after.SLO:
			return fmt.Sprintf("the objective of %.64s went from %.4g s to %.4g s", name, float64(before.SLO), float64(after.SLO))
		}
	}
	return ""
}

// drifted returns which rate differs enough from the planned one, or an empty text.
func (r ReplanRule) drifted(planned, observed Basis) string {
	for _, name := range sortedNames(planned.Applications) {
		before, after := planned.Applications[name].Rate, observed.Applications[name].Rate
		if math.Abs(after-before) <= r.Drift*before || !r.significant(before, after) {
			continue
		}
		return fmt.Sprintf("the rate of %.64s went from %.3g to %.3g a second", name, before, after)
	}
	return ""
}

// significant reports whether rates differ by more than chance: by three standard deviations of the count that the greater one gives in
// the time After, for Poisson arrivals. The first requests of an application that had none always count.
func (r ReplanRule) significant(before, after float64) bool {
	span := r.After.Seconds()
	return before == 0 || math.Abs(after-before)*span > 3*math.Sqrt(max(before, after)*span)
}

func sortedNames(of ...map[string]Observed) []string {
	var names []string
	for _, m := range of {
		for name := range m {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Replanned is the outcome of Replan.
type Replanned struct {
	Plan    Plan
	Changed bool // groups or configurations; the numbers of instances alone do not count
	Best    Cost // of the cheapest plan, which is Plan if Changed
}

// Replan returns the plan for in: that of present, the groups that are there now, unless it can no longer keep the SLOs or the cheapest
// plan saves more than the part saving of its cost. Errors are *share.FieldError.
func Replan(in Input, present []Group, saving float64) (Replanned, error) {
	best, err := Best(in)
	if err != nil {
		return Replanned{}, err
	}
	planned := in
	planned.Applications = slices.DeleteFunc(slices.Clone(in.Applications), func(a Application) bool {
		return slices.ContainsFunc(best.Infeasible, func(x Infeasible) bool { return x.Application.Name == a.Name })
	})
	if len(planned.Applications) > 0 && len(present) > 0 {
		kept, ok, err := Keep(planned, present)
		if err != nil {
			return Replanned{}, err
		}
		if ok && kept.Cost*Cost(1-saving) <= best.Cost {
			kept.Infeasible = best.Infeasible
			return Replanned{Plan: kept, Best: best.Cost}, nil
		}
	}
	return Replanned{Plan: best, Changed: true, Best: best.Cost}, nil
}

// Separate returns the cheapest plan in which each application is a group of its own, with which to compare others. Errors are
// *share.FieldError.
func Separate(in Input) (Plan, error) {
	return solve(in, in.Modes, func(o *options, sorted []Application) []Group { return singleGroups(o, sorted) })
}
