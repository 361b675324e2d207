package mig

// Instance is an existing or possible GPU instance: its MIG profile and its placement.
type Instance struct {
	Profile *Profile
	Start   int // first memory slice
}

// Layout is the set of memory slices, and the media engines, that the instances of one GPU occupy. The zero value is a GPU without
// instances.
//
// Compute slices need not be counted: instances on disjoint memory slices, at placements that the driver lists, never have more compute
// slices than the GPU.
type Layout struct {
	Used  Slices
	Media bool // an instance has the media engines
}

// Fits reports whether the driver could create the instance beside the existing ones: its placement is legal, its memory slices are free,
// and so are the media engines if it needs them.
func (l Layout) Fits(i Instance) bool {
	for _, start := range i.Profile.Starts {
		if start == i.Start {
			return l.Used&i.Profile.slicesAt(start) == 0 && !(l.Media && i.Profile.Media)
		}
	}
	return false
}

// With returns the layout after another instance, which must fit, is created.
func (l Layout) With(i Instance) Layout {
	return Layout{Used: l.Used | i.Profile.slicesAt(i.Start), Media: l.Media || i.Profile.Media}
}

// Without returns the layout after one of its instances is removed.
func (l Layout) Without(i Instance) Layout {
	return Layout{Used: l.Used &^ i.Profile.slicesAt(i.Start), Media: l.Media && !i.Profile.Media}
}

// Starts returns the first memory slices at which an instance of the profile can be created, in ascending order.
func (l Layout) Starts(p *Profile) []int {
	var starts []int
	for _, s := range p.Starts {
		if l.Fits(Instance{p, s}) {
			starts = append(starts, s)
		}
	}
	return starts
}

// Availability says where instances of one profile can still be created on a GPU, and how many fit together.
type Availability struct {
	Profile *Profile
	Starts  []int // first memory slices of the free placements
	Max     int   // number of instances that fit together
}

// Available returns the availability of each profile of which at least one more instance fits on a GPU with this layout.
func (m *Model) Available(l Layout) []Availability {
	var all []Availability
	for i := range m.Profiles {
		p := &m.Profiles[i]
		if starts := l.Starts(p); len(starts) > 0 {
			all = append(all, Availability{Profile: p, Starts: starts, Max: l.maxCount(p)})
		}
	}
	return all
}

// maxCount returns how many more instances of a profile fit together. Placing them in ascending order is optimal because they have the same
// size.
func (l Layout) maxCount(p *Profile) int {
	n := 0
	for _, s := range p.Starts {
		if i := (Instance{p, s}); l.Fits(i) {
			l = l.With(i)
			n++
		}
	}
	return n
}
