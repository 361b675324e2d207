package planning

import (
	"math"
	"math/bits"
	"slices"

	"github.com/gshare-dev/gshare/serving/rules/batching"
	"github.com/gshare-dev/gshare/serving/rules/profile"
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

// localSearch is a partition of the applications into groups, which the search improves one change at a time.
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

// move moves an application to the existing or new group that gives the least total cost. It reports whether the cost fell.
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

// exactLimit is the number of applications up to which all partitions into groups are searched: 2^10 possible groups, and 3^10/2 ways
// to split a subset in two.
const exactLimit = 10

func cheapest(o provisioner, sorted []Application) []Group {
	if len(sorted) <= exactLimit {
		return cheapestSets(o, sorted)
	}
	return improve(o, cheapestRuns(o, sorted))
}

// cheapestSets returns an optimal partition of the applications into groups, by dynamic programming over subsets. Groups need not be
// neighbours in the order of urgency: rare urgent requests may share a batch with frequent less urgent ones, or use the capacity that
// these leave on a reserved share.
func cheapestSets(o provisioner, sorted []Application) []Group {
	all := 1<<len(sorted) - 1
	alone, best, group := make([]Cost, all+1), make([]Cost, all+1), make([]int, all+1)
	for set := 1; set <= all; set++ {
		alone[set] = o.provision(newDemand(members(sorted, set))).cost
		best[set] = Cost(math.Inf(1))
		first := set & -set
		others := set &^ first
		for rest := others; ; rest = (rest - 1) & others {
			if cost := alone[set&^rest] + best[rest]; cost < best[set] {
				best[set], group[set] = cost, set&^rest
			}
			if rest == 0 {
				break
			}
		}
	}
	var groups []Group
	for set := all; set > 0; set &^= group[set] {
		own := members(sorted, group[set])
		groups = append(groups, newGroup(own, o.provision(newDemand(own))))
	}
	return groups
}

func members(sorted []Application, set int) []Application {
	own := make([]Application, 0, bits.OnesCount(uint(set)))
	for ; set > 0; set &= set - 1 {
		own = append(own, sorted[bits.TrailingZeros(uint(set))])
	}
	return own
}

// cheapestRuns returns the partition of the sorted applications into contiguous groups with the least total cost, by dynamic programming
// over prefixes.
func cheapestRuns(o provisioner, sorted []Application) []Group {
	best := make([]Cost, len(sorted)+1)
	from := make([]int, len(sorted)+1)
	for j := range sorted {
		best[j+1] = Cost(math.Inf(1))
	}
	for i := range sorted {
		var e batching.TimeoutAccumulator
		for j := i; j < len(sorted); j++ {
			e.Add(batching.Class{Timeout: float64(sorted[j].SLO), Rate: sorted[j].Rate})
			d := demand{sorted[i].SLO, e.Rate(), profile.Seconds(e.Timeout())}
			if cost := best[i] + o.provision(d).cost; cost < best[j+1] {
				best[j+1], from[j+1] = cost, i
			}
		}
	}
	var groups []Group
	for j := len(sorted); j > 0; j = from[j] {
		run := sorted[from[j]:j]
		groups = append(groups, newGroup(run, o.provision(newDemand(run))))
	}
	slices.Reverse(groups)
	return groups
}
