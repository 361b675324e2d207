package mig

import "iter"

// costs values every set of used memory slices: how little the rest is still good for. A byte holds every set, so the value
// of a placement is two look-ups.
type costs [256]int

func (m *Model) costs() *costs {
	var c costs
	for s := range 1 << m.Memory {
		c[s] = m.cost(Slices(s))
	}
	return &c
}

// cost is fragmentation first, and between equal ones the number of places lost.
func (m *Model) cost(used Slices) int {
	l := Layout{Used: used}
	return m.fragmentation(l)*m.places(Layout{}) - m.places(l)
}

// Harm is what creating the instance costs the profiles to come, as a Chooser has it, for who asks too rarely to prepare one.
func (m *Model) Harm(l Layout, i Instance) int { return m.cost(l.With(i).Used) - m.cost(l.Used) }

// fragmentation is FGD's measure with one request of every profile: each that finds no place counts the free slices, as they
// are lost to it.
func (m *Model) fragmentation(l Layout) int {
	free := m.Memory - l.Used.Len()
	lost := 0
	for p := range m.plain() {
		if len(l.Starts(p)) == 0 {
			lost += free
		}
	}
	return lost
}

// places counts the places at which an instance could be created, over all profiles.
func (m *Model) places(l Layout) int {
	n := 0
	for p := range m.plain() {
		n += len(l.Starts(p))
	}
	return n
}

// plain yields the profiles that differ in place: +me lies wherever its twin does.
func (m *Model) plain() iter.Seq[*Profile] {
	return func(yield func(*Profile) bool) {
		for i := range m.Profiles {
			if p := &m.Profiles[i]; !p.Media && !yield(p) {
				return
			}
		}
	}
}
