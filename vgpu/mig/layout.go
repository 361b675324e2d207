package mig

import "fmt"

// Instance is a GPU instance of a profile that begins at a memory slice.
type Instance struct {
	Profile *Profile
	Start   int
}

// Layout is what the instances of one GPU occupy. The zero value is a GPU without instances.
//
// The compute slices need no count of their own: in every placement that the driver lists, disjoint memory slices never
// hold more compute slices than the GPU has.
type Layout struct {
	Used  Slices
	Media bool // an instance has the media engines
}

// LayoutOf adds up the instances that run on one GPU. It refuses what no driver would have created.
func (m *Model) LayoutOf(running []Instance) (Layout, error) {
	var l Layout
	for _, i := range running {
		if !l.Fits(i) {
			return Layout{}, fmt.Errorf("%s: no %s can begin at memory slice %d beside the others", m.Name, i.Profile.Name, i.Start)
		}
		l = l.With(i)
	}
	return l, nil
}

// Fits says that the driver could create the instance now: its place is legal and free, and the GPU has media engines left
// for it.
func (l Layout) Fits(i Instance) bool {
	for _, start := range i.Profile.Starts {
		if start == i.Start {
			return l.Used&i.Profile.at(start) == 0 && !(l.Media && i.Profile.Media)
		}
	}
	return false
}

// With adds an instance that fits.
func (l Layout) With(i Instance) Layout {
	return Layout{Used: l.Used | i.Profile.at(i.Start), Media: l.Media || i.Profile.Media}
}

// Without removes an instance that runs.
func (l Layout) Without(i Instance) Layout {
	return Layout{Used: l.Used &^ i.Profile.at(i.Start), Media: l.Media && !i.Profile.Media}
}

// Starts lists where an instance of the profile can be created now, ascending.
func (l Layout) Starts(p *Profile) []int {
	var starts []int
	for _, s := range p.Starts {
		if l.Fits(Instance{p, s}) {
			starts = append(starts, s)
		}
	}
	return starts
}

// Room says what can still be created of one profile.
type Room struct {
	Profile *Profile
	Starts  []int // where the next instance can begin
	Most    int   // how many can be created if nothing else is
}

// Rooms says what can still be created on the GPU, profile by profile, leaving out those of which nothing can.
func (m *Model) Rooms(l Layout) []Room {
	var rooms []Room
	for i := range m.Profiles {
		p := &m.Profiles[i]
		if starts := l.Starts(p); len(starts) > 0 {
			rooms = append(rooms, Room{Profile: p, Starts: starts, Most: l.most(p)})
		}
	}
	return rooms
}

// most fills the GPU from below: instances of one size crowd out fewest others that way.
func (l Layout) most(p *Profile) int {
	n := 0
	for _, s := range p.Starts {
		if i := (Instance{p, s}); l.Fits(i) {
			l = l.With(i)
			n++
		}
	}
	return n
}
