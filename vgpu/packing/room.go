package packing

import (
	"math/bits"

	"github.com/gshare-dev/gshare/vgpu/mig"
)

// shadowed says that a slice cannot be made now: it is a place for a MIG instance, and another one that takes part of its room
// holds shares. Of such a device, any slices may be used together whose rooms are disjoint.
func (n *Node) shadowed(i int) bool {
	s := &n.Slices[i]
	if s.Room == 0 {
		return false
	}
	for j := range n.Slices {
		o := &n.Slices[j]
		if j != i && o.Room&s.Room != 0 && o.Device == s.Device && !n.Loads[j].Empty() {
			return true
		}
	}
	return false
}

// weigh notes what each option would cost the instances to come on its GPU: the gradient of package mig, over the profiles that
// the GPU is offered in.
func (n *Node) weigh(options []option) {
	var device string // that model and layout are of
	var model *mig.Model
	var layout mig.Layout
	for i := range options {
		o := &options[i]
		s := &n.Slices[o.Slice]
		if s.Room == 0 || !n.Loads[o.Slice].Empty() {
			continue
		}
		if model == nil || s.Device != device {
			model, layout, device = n.modelOf(s.Device), n.layoutOf(s.Device), s.Device
		}
		at := s.instance()
		o.size, o.harm = at.Profile.Memory, model.Harm(layout, at)
	}
}

// instance is the one that is made at a place.
func (s *Slice) instance() mig.Instance {
	start := bits.TrailingZeros8(s.Room)
	return mig.Instance{Profile: &mig.Profile{Name: s.Profile, Memory: bits.OnesCount8(s.Room), Starts: []int{start}}, Start: start}
}

// modelOf is what the places of a device say of it.
func (n *Node) modelOf(device string) *mig.Model {
	m := &mig.Model{Name: device, Memory: 8}
	for i := range n.Slices {
		s := &n.Slices[i]
		if s.Room == 0 || s.Device != device {
			continue
		}
		at := s.instance()
		if p, ok := m.Profile(s.Profile); ok {
			p.Starts = append(p.Starts, at.Start)
		} else {
			m.Profiles = append(m.Profiles, *at.Profile)
		}
	}
	return m
}

// layoutOf is what is taken of a device; memory slices that no place reaches count as taken.
func (n *Node) layoutOf(device string) mig.Layout {
	reached, taken := uint8(0), uint8(0)
	for i := range n.Slices {
		s := &n.Slices[i]
		if s.Device != device {
			continue
		}
		reached |= s.Room
		if !n.Loads[i].Empty() {
			taken |= s.Room
		}
	}
	return mig.Layout{Used: mig.Slices(^reached | taken)}
}
