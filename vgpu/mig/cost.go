package mig

import "iter"

// costs holds the cost of every set of used memory slices, by the set's value. The cost of a placement is then two look-ups.
type costs [256]int

// costs returns the costs of all sets.
func (m *Model) costs() *costs {
	var c costs
	for s := range 1 << m.Memory {
		c[s] = m.cost(Slices(s))
	}
	return &c
}

// cost returns how little the free slices are useful for: first by fragmentation, then by the number of lost placements.
func (m *Model) cost(used Slices) int {
	l := Layout{Used: used}
	return m.fragmentation(l)*m.placements(Layout{}) - m.placements(l)
}

// FragmentationCost is Chooser.FragmentationCost for callers that use it too rarely to prepare a Chooser.
func (m *Model) FragmentationCost(l Layout, i Instance) int {
	return m.cost(l.With(i).Used) - m.cost(l.Used)
}

// fragmentation returns FGD's measure for one request of every profile: each profile without a free placement adds the number of free
// slices, as they are lost to it.
func (m *Model) fragmentation(l Layout) int {
	free := m.Memory - l.Used.Len()
	lost := 0
	for p := range m.withoutMedia() {
		if len(l.Starts(p)) == 0 {
			lost += free
		}
	}
	return lost
}

// placements returns the number of free placements of all profiles.
func (m *Model) placements(l Layout) int {
	n := 0
	for p := range m.withoutMedia() {
		n += len(l.Starts(p))
	}
	return n
}

// withoutMedia yields the profiles without media engines. The others have the same placements as their counterparts without.
func (m *Model) withoutMedia() iter.Seq[*Profile] {
	return func(yield func(*Profile) bool) {
		for i := range m.Profiles {
			if p := &m.Profiles[i]; !p.Media && !yield(p) {
				return
			}
		}
	}
}

// Chooser chooses placements on GPUs of one model by fragmentation gradient descent: those that make the fewest free slices useless for the
// profiles that may be requested next. It is immutable and safe for concurrent use.
type Chooser struct {
	costs *costs
}

// NewChooser returns a Chooser for a model.
func NewChooser(m *Model) *Chooser { return &Chooser{costs: m.costs()} }

// Choose returns the index of the GPU and the start at which a new instance has the least cost, the first of equal ones. It returns false if
// no GPU has a free placement.
func (c *Chooser) Choose(gpus []Layout, p *Profile) (gpu, start int, ok bool) {
	var least int
	for g, l := range gpus {
		for _, s := range p.Starts {
			i := Instance{p, s}
			if !l.Fits(i) {
				continue
			}
			if cost := c.FragmentationCost(l, i); !ok || cost < least {
				gpu, start, ok, least = g, s, true, cost
			}
		}
	}
	return gpu, start, ok
}

// FragmentationCost returns how much less useful the free slices become for later requests if the instance is created; it may be negative.
// Costs are comparable on all GPUs of this model, so a scheduler can rank nodes by them.
func (c *Chooser) FragmentationCost(l Layout, i Instance) int {
	return c.costs[l.With(i).Used] - c.costs[l.Used]
}
