package planning

import "slices"

// Phases plans by PAMBA's two phases of greedy merges, with the corrections that docs/glossary.md lists as P1 to P4. It is a baseline for
// Best.
func Phases(in Input) (Plan, error) { return solve(in, in.Modes, byPhases) }

func byPhases(o *options, sorted []Application) []Group {
	m := greedyMerge{o, singleGroups(o, sorted)}
	m.phaseI()
	m.phaseII()
	return m.groups
}

// singleGroups returns a group with its cheapest configuration for each single application, from which merging starts.
func singleGroups(o *options, sorted []Application) []Group {
	var groups []Group
	for i := range sorted {
		own := sorted[i : i+1]
		groups = append(groups, newGroup(own, o.provision(newDemand(own))))
	}
	return groups
}

// greedyMerge is a list of groups of applications, the most urgent first, whose neighbours are merged greedily.
type greedyMerge struct {
	options *options
	groups  []Group
}

// join returns the applications of groups i to j-1 as one group with its cheapest configuration. It does not change the list.
func (m *greedyMerge) join(i, j int) Group {
	var all []Application
	for _, g := range m.groups[i:j] {
		all = append(all, g.Applications...)
	}
	return newGroup(all, m.options.provision(newDemand(all)))
}

// merge merges groups i to j-1 if that reduces the cost per second and allowed accepts the result. It reports whether it did. It does
// not compare costs per request, because these do not add up over groups.
func (m *greedyMerge) merge(i, j int, allowed func(Group) bool) bool {
	joined, apart := m.join(i, j), Cost(0)
	for _, g := range m.groups[i:j] {
		apart += g.Cost
	}
	if !(joined.Cost < apart) || !allowed(joined) { // P1
		return false
	}
	m.replace(i, j, joined)
	return true
}

func (m *greedyMerge) replace(i, j int, by Group) {
	m.groups = slices.Replace(m.groups, i, j, by)
}

// phaseI is PAMBA's first phase: it merges runs of at least two groups that need no GPU, from left to right, and restarts a run after
// each merge. It omits the paper's bounds on summed rates, which only save time and could exclude a cheaper plan.
func (m *greedyMerge) phaseI() {
	for i := 0; i < len(m.groups); i++ {
		for j := i + 1; j < len(m.groups) && !m.onGPU(i) && !m.onGPU(j); { // P4
			if m.merge(i, j+1, func(Group) bool { return true }) {
				j = i
			}
			j++
		}
	}
}

// phaseII is PAMBA's second phase: it merges two neighbouring groups if at least one of them and the result need a GPU. It steps back one
// group after each merge, but not to before the first one.
func (m *greedyMerge) phaseII() {
	for i := 0; i+1 < len(m.groups); {
		if (m.onGPU(i) || m.onGPU(i+1)) && m.merge(i, i+2, func(g Group) bool { return g.Config.Mode.onGPU() }) { // P2
			i = max(0, i-1) // P3
		} else {
			i++
		}
	}
}

func (m *greedyMerge) onGPU(i int) bool { return m.groups[i].Config.Mode.onGPU() }
