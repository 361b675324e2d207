package rebalance

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Free returns moves that empty whole devices, each move to a device that is in use anyway. It starts with the devices whose pods are moved
// with the least reluctance, and among those with the ones that hold the fewest pods.
func Free(c *Cluster, l Limits) Plan {
	s := newState(c, false)
	for s.freeOnce(l) {
	}
	return s.plan()
}

// freeOnce tries to empty each device once, and reports whether it has emptied one.
func (s *state) freeOnce(l Limits) (progress bool) {
	for _, c := range s.candidates() {
		if l.Devices > 0 && s.freed >= l.Devices {
			return false
		}
		pods := s.podsOn(c.Device) // pods of other devices may have been moved here since
		if len(pods) == 0 || len(pods) > min(l.perDevice(), l.Moves-len(s.moves)) {
			continue
		}
		s.close([]Device{c.Device})
		if s.clear(pods, nil) {
			s.freed++
			progress = true
		}
		s.close(nil)
	}
	return progress
}

// candidate is a device that could be emptied.
type candidate struct {
	Device
	reluctance int // the highest of its pods
	pods       int
	area       share.Area // sum over its pods
}

// candidates returns the devices whose pods may all be moved, in the order in which to try them.
func (s *state) candidates() (list []candidate) {
	for node, n := range s.nodes {
		for i := range n.Slices {
			d := Device{node, n.Slices[i].Device}
			if i > 0 && n.Slices[i-1].Device == d.ID || !s.canEmpty(d) {
				continue
			}
			c := candidate{Device: d}
			for _, p := range s.podsOn(d) {
				c.reluctance = max(c.reluctance, s.Pods[p].Reluctance())
				c.area += s.Pods[p].Request.Area()
				c.pods++
			}
			if c.pods > 0 {
				list = append(list, c)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.reluctance, b.reluctance), cmp.Compare(a.pods, b.pods), cmp.Compare(a.area, b.area))
	})
	return list
}

// canEmpty reports whether a device is healthy, holds only listed pods, and all of them may be moved. A device with a pod that prefers
// empty devices (packing spread) does not qualify: the scheduler would place the pod's replacement on the device that just became free.
func (s *state) canEmpty(d Device) bool {
	n := s.Nodes[d.Node]
	for i := range n.Slices {
		if n.Slices[i].Device == d.ID && (!n.Slices[i].Healthy || !n.Loads[i].Empty()) {
			return false
		}
	}
	return !slices.ContainsFunc(s.podsOn(d), func(p int) bool { return !s.mayMove(p) || s.Pods[p].Request.Packing == share.Spread })
}

// podsOn returns the listed pods that hold a slice of a device.
func (s *state) podsOn(d Device) (pods []int) {
	n := s.Nodes[d.Node]
	for _, p := range s.on[d.Node] {
		if slices.ContainsFunc(s.at[p].plan, func(picks []packing.Pick) bool {
			return slices.ContainsFunc(picks, func(pick packing.Pick) bool { return n.Slices[pick.Slice].Device == d.ID })
		}) {
			pods = append(pods, p)
		}
	}
	return pods
}
