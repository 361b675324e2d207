package planning

import (
	"math"
	"slices"
)

// improve reduces the cost of a partition into groups by moving single applications and joining groups, until neither helps.
func improve(o provisioner, groups []Group) []Group {
	s := &localSearch{options: o}
	for _, g := range groups {
		s.groups = append(s.groups, pricedGroup{g.Applications, g.Cost})
	}
	for s.moveAll() || s.joinAll() {
	}
	var out []Group
	for _, p := range s.groups {
		out = append(out, newGroup(p.applications, o.provision(newDemand(p.applications))))
	}
	slices.SortStableFunc(out, func(a, b Group) int { return compareUrgency(a.Applications[0], b.Applications[0]) })
	return out
}

// localSearch is a partition of the applications into groups that is improved step by step.
type localSearch struct {
	options provisioner
	groups  []pricedGroup
}

type pricedGroup struct {
	applications []Application // by urgency
	cost         Cost
}

// minSaving is the relative cost reduction below which the local search makes no change, so that rounding errors cannot make it cycle.
const minSaving = 1e-9

func (s *localSearch) price(applications []Application) pricedGroup {
	if len(applications) == 0 {
		return pricedGroup{}
	}
	return pricedGroup{applications, s.options.provision(newDemand(applications)).cost}
}

// moveAll moves each application once to another group, if that reduces the cost. It reports whether any was moved.
func (s *localSearch) moveAll() bool {
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
func (s *localSearch) move(a Application) bool {
	from := slices.IndexFunc(s.groups, func(p pricedGroup) bool { return slices.Contains(p.applications, a) })
	without := s.price(slices.DeleteFunc(slices.Clone(s.groups[from].applications), func(b Application) bool { return a == b }))
	freed := s.groups[from].cost - without.cost
	to, best, least := -1, pricedGroup{}, freed*(1-minSaving)
	for i := range len(s.groups) + 1 {
		own := pricedGroup{}
		if i < len(s.groups) {
			own = s.groups[i]
		}
		if i == from || i == len(s.groups) && len(without.applications) == 0 {
			continue
		}
		with := s.price(insert(own.applications, a))
		if more := with.cost - own.cost; more < least {
			to, best, least = i, with, more
		}
	}
	if to < 0 {
		return false
	}
	s.groups = append(s.groups, pricedGroup{})
	s.groups[from], s.groups[to] = without, best
	s.removeEmpty()
	return true
}

func (s *localSearch) removeEmpty() {
	s.groups = slices.DeleteFunc(s.groups, func(p pricedGroup) bool { return len(p.applications) == 0 })
}

func insert(sorted []Application, a ...Application) []Application {
	with := append(slices.Clone(sorted), a...)
	slices.SortFunc(with, compareUrgency)
	return with
}

// joinAll joins pairs of groups that cost less together. It reports whether any were joined.
func (s *localSearch) joinAll() bool {
	joined := false
	for i := 0; i < len(s.groups); i++ {
		for j := i + 1; j < len(s.groups); j++ {
			apart := s.groups[i].cost + s.groups[j].cost
			both := s.price(insert(s.groups[i].applications, s.groups[j].applications...))
			if both.cost < apart*(1-minSaving) && !math.IsInf(float64(both.cost), 1) {
				s.groups[i], joined = both, true
				s.groups = slices.Delete(s.groups, j, j+1)
				j = i
			}
		}
	}
	return joined
}
