package packing

import (
	"math"
	"slices"
)

// Locality says where in its node a whole GPU is. GPUs with equal numbers above 0 are close to each other; 0 means that the GPU is in no
// set, or that its place is not known.
type Locality struct {
	NVLink int // number of a set of GPUs in which every two are joined by NVLink
	NUMA   int // number of the NUMA node to which the GPU is attached
}

// hasLocality reports whether the locality of any GPU of the node is known.
func (n *Node) hasLocality() bool {
	for i := range n.Slices {
		if (n.Slices[i].Locality != Locality{}) {
			return true
		}
	}
	return false
}

// preferNear reorders options of container c that differ in nothing that compareOptions compares but their index. Among such
// options it puts first as many as the container has vGPUs that are close to each other and to the GPUs that the pod already has. The
// options must be sorted. Nothing changes on a node without localities, and options of different rank or SM-time never change places, so no
// placement costs more because of it.
//
// It is greedy. In each step the next option is the one joined by NVLink to most of the pod's GPUs; of equal ones, the one with the
// smallest NVLink set that has enough GPUs for the remaining vGPUs, or else the largest set; then the same by NUMA node. As many pairs of
// GPUs as possible are thus joined by NVLink, and sets that are larger than needed stay whole for other pods.
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

// equalsExceptSlice reports whether compareOptions tells the two options apart by nothing but the index of the slice.
func (o option) equalsExceptSlice(other option) bool {
	other.Slice = o.Slice
	return compareOptions(o, other) == 0
}

// nearest returns the index of the best option for the next vGPU, given the localities of the GPUs that the pod already has and the number
// of vGPUs that remain: the first of those that are equally good.
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

// counts holds, for each set, how many of its GPUs are taken by the pod and how many are available.
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

// of returns how many taken GPUs are close to a GPU of the numbered set, and how well the set fits the remaining vGPUs: of sets that have
// enough GPUs the smallest fits best; of others the largest. A GPU without a set forms a set of its own.
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
