package packing

import (
	"math"
	"slices"
)

// Locality is where in its node a whole GPU is. GPUs with equal numbers above 0 are close to each other; 0 stands for none, or not known.
type Locality struct {
	NVLink int // a set of GPUs of which every two are joined by NVLink
	NUMA   int // the NUMA node to which the GPU is attached
}

// hasLocality reports whether it is known of any GPU of the node which others it is close to.
func (n *Node) hasLocality() bool {
	for i := range n.Slices {
		if (n.Slices[i].Locality != Locality{}) {
			return true
		}
	}
	return false
}

// preferNear reorders options of container c that are equal in all that compareOptions compares, except their index, so that as many as the
// container has vGPUs are close to each other and to what the pod has been given. Options are sorted. Nothing changes on a node without
// localities, and options of different rank or SM-time never change places, so placements cost no more than without it.
//
// It is greedy: in each step, the option joined by NVLink to most of the pod's GPUs comes next, then the one whose NVLink set is the smallest
// that has enough for the vGPUs still to be placed, or else the largest; then the same by NUMA node. So as many pairs of GPUs are joined by
// NVLink as can be, and sets that are larger than needed stay whole for other pods.
func (s *search) preferNear(c int, options []option) {
	if !s.node.hasLocality() {
		return
	}
	taken := make([]Locality, 0, len(s.chosen))
	for _, o := range s.chosen {
		taken = append(taken, s.node.Slices[o.Slice].Locality)
	}
	own, remaining := s.pod.Request.Containers[c].VGPUs, 0
	for _, container := range s.pod.Request.Containers[c:] {
		remaining += container.VGPUs
	}
	for equal := options; len(equal) > 0 && own > 0; {
		end := slices.IndexFunc(equal, func(o option) bool { return !o.equalsExceptSlice(equal[0]) })
		if end < 0 {
			end = len(equal)
		}
		for i := 0; i < end && own > 0; i++ {
			next := i + s.node.nearest(equal[i:end], taken, remaining)
			o := equal[next]
			copy(equal[i+1:next+1], equal[i:next]) // the others keep their order
			equal[i] = o
			taken = append(taken, s.node.Slices[o.Slice].Locality)
			own, remaining = own-1, remaining-1
		}
		equal = equal[end:]
	}
}

// equalsExceptSlice reports whether only the index of the slice makes compareOptions prefer one of the options.
func (o option) equalsExceptSlice(other option) bool {
	other.Slice = o.Slice
	return compareOptions(o, other) == 0
}

// nearest returns the index of the best option for the next of so many remaining vGPUs of a pod that has been given GPUs with the taken
// localities: the first of those that are equally good.
func (n *Node) nearest(options []option, taken []Locality, remaining int) int {
	var linked, local counts
	for _, o := range options {
		linked.add(n.Slices[o.Slice].Locality.NVLink, 0, 1)
		local.add(n.Slices[o.Slice].Locality.NUMA, 0, 1)
	}
	for _, at := range taken {
		linked.add(at.NVLink, 1, 0)
		local.add(at.NUMA, 1, 0)
	}
	best, bestKey := 0, [4]int{-1}
	for i, o := range options {
		at := n.Slices[o.Slice].Locality
		near, fit := linked.of(at.NVLink, remaining)
		nearNUMA, fitNUMA := local.of(at.NUMA, remaining)
		if key := [4]int{near, fit, nearNUMA, fitNUMA}; slices.Compare(key[:], bestKey[:]) > 0 {
			best, bestKey = i, key
		}
	}
	return best
}

// counts has the number of taken and of available GPUs of each set.
type counts []struct{ number, taken, available int }

func (c *counts) add(number, taken, available int) {
	if number == 0 {
		return
	}
	for i := range *c {
		if at := &(*c)[i]; at.number == number {
			at.taken, at.available = at.taken+taken, at.available+available
			return
		}
	}
	*c = append(*c, struct{ number, taken, available int }{number, taken, available})
}

// of returns how many taken GPUs a GPU of the numbered set is close to, and how well the set fits the remaining vGPUs: of sets that have
// enough, the smallest is the best; of others the largest. A GPU without a set is a set of its own.
func (c counts) of(number, remaining int) (near, fit int) {
	available := 1
	for _, at := range c {
		if at.number == number {
			near, available = at.taken, at.available
		}
	}
	if available < remaining {
		return near, available
	}
	return near, math.MaxInt - available
}
