package planning

import (
	"math"
	"slices"
)

// improve moves single applications between groups, and joins groups, until neither reduces the cost.
func improve(o provisioner, groups []Group) []Group {
	s := &arrangement{options: o}
	for _, g := range groups {
		s.groups = append(s.groups, part{g.Applications, g.Cost})
	}
	for s.moveAll() || s.joinAll() {
	}
	var out []Group
	for _, p := range s.groups {
		out = append(out, newGroup(p.applications, o.provision(demandOf(p.applications))))
	}
	slices.SortStableFunc(out, func(a, b Group) int { return byUrgency(a.Applications[0], b.Applications[0]) })
	return out
}

// arrangement is a partition of the applications into groups that a local search modifies.
type arrangement struct {
	options provisioner
	groups  []part
}

type part struct {
	applications []Application // by urgency
	cost         Cost
}

// minSaving is the relative cost reduction that a change must bring, so that rounding errors cannot make the search cycle.
const minSaving = 1e-9

func (s *arrangement) part(applications []Application) part {
	if len(applications) == 0 {
		return part{}
	}
	return part{applications, s.options.provision(demandOf(applications)).cost}
}

// moveAll moves each application once if that reduces the cost. It reports whether any was moved.
func (s *arrangement) moveAll() bool {
	moved := false
	var all []Application
	for _, p := range s.groups {
		all = append(all, p.applications...)
	}
	for _, a := range all {
		moved = s.move(a) || moved
	}
	return moved
}

// move moves an application to the group, or to a new one, where the total cost is least. It reports whether the cost fell.
func (s *arrangement) move(a Application) bool {
	from := slices.IndexFunc(s.groups, func(p part) bool { return slices.Contains(p.applications, a) })
	without := s.part(slices.DeleteFunc(slices.Clone(s.groups[from].applications), func(b Application) bool { return a == b }))
	freed := s.groups[from].cost - without.cost
	to, best, least := -1, part{}, freed*(1-minSaving)
	for i := range len(s.groups) + 1 {
		own := part{}
		if i < len(s.groups) {
			own = s.groups[i]
		}
		if i == from || i == len(s.groups) && len(without.applications) == 0 {
			continue
		}
		with := s.part(insert(own.applications, a))
		if more := with.cost - own.cost; more < least {
			to, best, least = i, with, more
		}
	}
	if to < 0 {
		return false
	}
	s.groups = append(s.groups, part{})
	s.groups[from], s.groups[to] = without, best
	s.removeEmpty()
	return true
}

// removeEmpty removes groups without applications.
func (s *arrangement) removeEmpty() {
	s.groups = slices.DeleteFunc(s.groups, func(p part) bool { return len(p.applications) == 0 })
}

func insert(sorted []Application, a ...Application) []Application {
	with := append(slices.Clone(sorted), a...)
	slices.SortFunc(with, byUrgency)
	return with
}

// joinAll joins pairs of groups that cost less together. It reports whether any were joined.
func (s *arrangement) joinAll() bool {
	joined := false
	for i := 0; i < len(s.groups); i++ {
		for j := i + 1; j < len(s.groups); j++ {
			apart := s.groups[i].cost + s.groups[j].cost
			both := s.part(insert(s.groups[i].applications, s.groups[j].applications...))
			if both.cost < apart*(1-minSaving) && !math.IsInf(float64(both.cost), 1) {
				s.groups[i], joined = both, true
				s.groups = slices.Delete(s.groups, j, j+1)
				j = i
			}
		}
	}
	return joined
}
