package packing

import (
	"math/bits"

	"github.com/gshare-dev/gshare/vgpu/mig"
)

// isBlocked reports whether slice i is a MIG instance that cannot be created now, because an instance with overlapping memory slices holds
// shares.
func (n *Node) isBlocked(i int) bool {
	s := &n.Slices[i]
	if s.MemorySlices == 0 {
		return false
	}
	for j := range n.Slices {
		o := &n.Slices[j]
		if j != i && o.MemorySlices&s.MemorySlices != 0 && o.Device == s.Device && !n.Loads[j].Empty() {
			return true
		}
	}
	return false
}

// addFragmentationCosts sets the size and the fragmentation cost of each option that is a MIG instance to be created. The cost is how much
// less of the GPU would remain usable for later instances, as computed by package mig.
func (n *Node) addFragmentationCosts(options []option) {
	var device string // the device that model and layout describe
	var model *mig.Model
	var layout mig.Layout
	for i := range options {
		o := &options[i]
		s := &n.Slices[o.Slice]
		if s.MemorySlices == 0 || !n.Loads[o.Slice].Empty() {
			continue
		}
		if model == nil || s.Device != device {
			model, layout, device = n.migModel(s.Device), n.migLayout(s.Device), s.Device
		}
		at := s.migInstance()
		o.size, o.fragmentationCost = at.Profile.Memory, model.FragmentationCost(layout, at)
	}
}

// migInstance returns the slice as a MIG instance to be created.
func (s *Slice) migInstance() mig.Instance {
	start := bits.TrailingZeros8(s.MemorySlices)
	return mig.Instance{Profile: &mig.Profile{Name: s.Profile, Memory: bits.OnesCount8(s.MemorySlices), Starts: []int{start}}, Start: start}
}

// migModel returns the MIG profiles of a device and the memory slices at which their instances may start, as far as the inventory of the
// node lists them.
func (n *Node) migModel(device string) *mig.Model {
	m := &mig.Model{Name: device, Memory: 8}
	for i := range n.Slices {
		s := &n.Slices[i]
		if s.MemorySlices == 0 || s.Device != device {
			continue
		}
		at := s.migInstance()
		if p, ok := m.Profile(s.Profile); ok {
			p.Starts = append(p.Starts, at.Start)
		} else {
			m.Profiles = append(m.Profiles, *at.Profile)
		}
	}
	return m
}

// migLayout returns which memory slices of a device are occupied. Memory slices that no MIG instance of the inventory covers count as
// occupied.
func (n *Node) migLayout(device string) mig.Layout {
	reached, taken := uint8(0), uint8(0)
	for i := range n.Slices {
		s := &n.Slices[i]
		if s.Device != device {
			continue
		}
		reached |= s.MemorySlices
		if !n.Loads[i].Empty() {
			taken |= s.MemorySlices
		}
	}
	return mig.Layout{Used: mig.Slices(^reached | taken)}
}
