package packing

import (
	"slices"
)

// search places the vGPUs of a pod one by one on a scratch copy of a node, on the best slice first, and backtracks if a later vGPU fits no
// slice. It tries every combination unless its budget runs out.
type search struct {
	packer Packer
	node   *Node // scratch copy that holds what is chosen
	pod    *Pod
	chosen []Choice
	budget int
}

// placeContainer places container c of the pod and all containers after it, and reports whether it succeeded.
func (s *search) placeContainer(c int) bool {
	if c == len(s.pod.Request.Containers) {
		return true
	}
	options := s.sortedOptions(c, nil)
	return s.placeVGPU(c, 0, options)
}

// placeVGPU places vGPU v of container c on one of the options (slices that admit it), then the remaining vGPUs and containers. The vGPUs
// of a container are interchangeable, so each is tried only on options after the one of the vGPU before it.
func (s *search) placeVGPU(c, v int, options []option) bool {
	if v == s.pod.Request.Containers[c].VGPUs {
		return s.placeContainer(c + 1)
	}
	for i, o := range options {
		if s.isDeviceTaken(c, o.Slice) {
			continue
		}
		if s.budget--; s.budget < 0 {
			return false
		}
		undo := s.choose(c, o)
		if s.placeVGPU(c, v+1, options[i+1:]) {
			return true
		}
		undo()
	}
	return false
}

// sortedOptions returns every slice that admits one share of container c, best first, including the slices that options skips because they
// equal the one before. Among equally good slices, those that are close to each other come first.
func (s *search) sortedOptions(c int, costs *nodeCosts) []option {
	n := s.node
	options, _ := s.packer.options(n, s.pod, c, costs, nil)
	for i := range n.Slices {
		if n.repeatsPrevious(i) && !s.pod.looksAtDevices() {
			if at := slices.IndexFunc(options, func(o option) bool { return o.Slice == i-1 }); at >= 0 {
				twin := options[at]
				twin.Slice = i
				options = append(options, twin)
			}
		}
	}
	slices.SortFunc(options, compareOptions)
	s.preferNear(c, options)
	return options
}

// isDeviceTaken reports whether another vGPU of the container was placed on the device of the slice.
func (s *search) isDeviceTaken(c, slice int) bool {
	return slices.ContainsFunc(s.chosen, func(o Choice) bool {
		return o.Container == c && s.node.Slices[o.Slice].Device == s.node.Slices[slice].Device
	})
}

// choose places one vGPU of container c on the scratch node and returns a function that undoes it.
func (s *search) choose(c int, o option) (undo func()) {
	load := &s.node.Loads[o.Slice]
	before := *load
	ask := s.packer.shareRequest(s.pod, c)
	load.Add(ask.resident(s.packer.Rules.Model, o.Class))
	s.chosen = append(s.chosen, Choice{Pick: o.Pick, Container: c})
	return func() {
		*load = before
		s.chosen = s.chosen[:len(s.chosen)-1]
	}
}

// refusal returns why the pod does not fit the node. It checks each container by itself, so that the refusal says something about the node
// and not about the pod's other containers.
func (s *search) refusal() Refusal {
	var worst Refusal
	for c := range s.pod.Request.Containers {
		refusal := s.refusalAlone(c)
		if refusal.NeverFits() {
			return refusal
		}
		worst = max(worst, refusal)
	}
	if worst == Admitted {
		return NoJointPlacement
	}
	return worst
}

// refusalAlone returns why container c would not fit the node without the pod's other containers, or Admitted. It distinguishes nodes with
// too few devices that could ever serve the container from nodes with too few that can serve it now.
func (s *search) refusalAlone(c int) Refusal {
	n, vgpus := s.node, s.pod.Request.Containers[c].VGPUs
	ask := s.packer.shareRequest(s.pod, c)
	able, ready := map[string]bool{}, map[string]bool{}
	var never, worst Refusal
	for i := range n.Slices {
		_, refusal := s.packer.Rules.AdmitOn(n, i, ask)
		worst = max(worst, refusal)
		switch device := n.Slices[i].Device; {
		case refusal.NeverFits():
			never = max(never, refusal)
		case refusal == Admitted:
			able[device], ready[device] = true, true
		default:
			able[device] = true
		}
	}
	switch {
	case len(ready) >= vgpus:
		return Admitted
	case len(able) >= vgpus:
		return worst
	case len(able) == 0 || n.devices() >= vgpus:
		return never
	}
	return TooFewDevices
}

// devices returns the number of physical GPUs of the node.
func (n *Node) devices() int {
	seen := make(map[string]struct{}, len(n.Slices))
	for i := range n.Slices {
		seen[n.Slices[i].Device] = struct{}{}
	}
	return len(seen)
}
