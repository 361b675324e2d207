package mig

import "iter"

// costTable holds the cost of every set of used memory slices: how useless the remaining free slices are for later instances. With it, the
// cost of a placement takes two look-ups.
type costTable [256]int

// costTable returns the cost of every set of used memory slices on a GPU of the model.
func (m *Model) costTable() *costTable {
	var c costTable
	for s := range 1 << m.Memory {
		c[s] = m.cost(Slices(s))
	}
	return &c
}

// cost returns how useless the free slices are for later instances. Fragmentation decides; among equal fragmentations, more free placements
// cost less.
func (m *Model) cost(used Slices) int {
	l := Layout{Used: used}
	return m.fragmentation(l)*m.countPlacements(Layout{}) - m.countPlacements(l)
}

// FragmentationCost returns how much less useful the free slices of a GPU become if the instance is created. Callers that need many costs
// prepare a Chooser instead.
func (m *Model) FragmentationCost(l Layout, i Instance) int {
	return m.cost(l.With(i).Used) - m.cost(l.Used)
}

// fragmentation returns the fragmentation measure of FGD for one request of every profile: for each profile without a free placement it
// adds the number of free memory slices, since that profile can use none of them.
func (m *Model) fragmentation(l Layout) int {
	free := m.Memory - l.Used.Len()
	lost := 0
	for p := range m.profilesWithoutMedia() {
		if len(l.Starts(p)) == 0 {
			lost += free
		}
	}
	return lost
}

// countPlacements returns the number of free placements of all profiles on a GPU with this layout.
func (m *Model) countPlacements(l Layout) int {
	n := 0
	for p := range m.profilesWithoutMedia() {
		n += len(l.Starts(p))
	}
	return n
}

// profilesWithoutMedia iterates over the profiles without media engines. Those with media engines (+me) have the same placements as their
// counterparts.
func (m *Model) profilesWithoutMedia() iter.Seq[*Profile] {
	return func(yield func(*Profile) bool) {
		for i := range m.Profiles {
			if p := &m.Profiles[i]; !p.Media && !yield(p) {
				return
			}
		}
	}
}

// Chooser chooses where to create instances on GPUs of one model by fragmentation gradient descent: it takes the placement that makes the
// fewest free slices useless for the profiles that may be requested next. It is immutable and safe for concurrent use.
type Chooser struct {
	costs *costTable
}

// NewChooser returns a Chooser for GPUs of the model.
func NewChooser(m *Model) *Chooser { return &Chooser{costs: m.costTable()} }

// Choose returns the GPU, by index, and the first memory slice at which a new instance costs least; of equal costs, the first. It returns
// false if no GPU has a free placement.
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

// FragmentationCost returns how much less useful the free slices of a GPU become for later requests if the instance is created; it may be
// negative. Costs are comparable across all GPUs of this model, so a scheduler can rank nodes by them.
func (c *Chooser) FragmentationCost(l Layout, i Instance) int {
	return c.costs[l.With(i).Used] - c.costs[l.Used]
}
