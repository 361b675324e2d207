package planning

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/profile"
)

// Basis is what a plan depends on. A plan for another basis may differ.
type Basis struct {
	// Data identifies everything except the applications: modes, latency models, prices, and rates set by a
	// person. A change takes effect at once.
	Data         string
	Applications map[string]Observed // by name
}

// Observed is what is known of an application. A rate of zero means that the application gets no requests; it is then in no group.
type Observed struct {
	SLO  profile.Seconds
	Rate float64 // requests per second, averaged over ReplanRule.After or longer
}

// ReplanRule says when to plan again, and when to change a plan. It has two kinds of hysteresis: a rate must differ considerably for
// some time before anything is planned, and a plan is replaced only by one that is sufficiently cheaper.
type ReplanRule struct {
	Drift  float64       // fraction by which a rate must differ from the planned one
	After  time.Duration // how long it must differ; shorter peaks do not count
	Saving float64       // fraction of the cost that another plan must save
}

// Drift decides when to plan again. Its zero value is ready to use.
type Drift struct {
	since time.Time // when a rate began to differ; zero if none does
}

// Due returns the reason for planning again now, or an empty string. planned is the basis of the current plan, and observed the one seen at
// the time now. Due must be called repeatedly.
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
	if why == "" || now.Sub(d.since) < 2*r.After { // a peak of length After affects a mean over After for twice as long
		return ""
	}
	d.since = time.Time{}
	return why
}

// changed returns what has been changed on purpose, as opposed to a rate that has drifted, or an empty string.
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

// drifted describes the first rate that differs enough from the planned one. It returns an empty string if there is none.
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

// significant reports whether two rates differ by more than chance: by more than three standard deviations of the number of Poisson
// arrivals that the higher rate gives in the time After. The first requests of an application that had none always count.
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
	Changed bool // groups or configurations differ; numbers of instances alone do not count
	Best    Cost // of the cheapest plan, which is Plan if Changed
}

// Replan returns the plan for in: it keeps present, the current groups, unless these can no longer meet the SLOs or the cheapest plan
// saves more than the fraction saving of their cost. Errors are *share.FieldError.
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

// Separate returns the cheapest plan in which each application is a group of its own, as a baseline for other plans. Errors
// are *share.FieldError.
func Separate(in Input) (Plan, error) {
	return solve(in, in.Modes, func(o *options, sorted []Application) []Group { return singleGroups(o, sorted) })
}
