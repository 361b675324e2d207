package packing

import (
	"math/bits"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// searchBudget bounds the slices tried for a pod of several containers on one node. Without backtracking one try for each vGPU suffices.
// The bound keeps a pod from occupying the scheduler for long on thousands of nodes.
const searchBudget = 4 * share.MaxVGPUs

// Packer places pods on nodes: its Rules decide which slices can take a share, its Ranker which of them are best.
type Packer struct {
	Rules  Rules
	Ranker Ranker
}

// Place returns the best slices of the node for the whole pod and their rank, or the most informative refusal. The vGPUs of a container are
// placed on different devices; either all containers are placed or none. A pod without vGPUs is ranked by what it leaves to GPU pods.
func (p Packer) Place(n *Node, pod *Pod) (Plan, Rank, Refusal) {
	choices, rank, refusal := p.place(n, pod, nil, nil)
	if refusal != Admitted {
		return nil, 0, refusal
	}
	return planOf(pod, choices), rank, Admitted
}

// planOf groups the choices by container.
func planOf(pod *Pod, choices []Choice) Plan {
	plan := make(Plan, len(pod.Request.Containers))
	for _, c := range choices {
		plan[c.Container] = append(plan[c.Container], c.Pick)
	}
	return plan
}

// place implements Place and appends the choices to found. The costs, if not nil, are those of this node under policy D, and replace the
// ranker.
func (p *Packer) place(n *Node, pod *Pod, costs *nodeCosts, found []Choice) ([]Choice, Rank, Refusal) {
	switch containers := pod.Request.Containers; {
	case len(containers) == 0:
		return found, p.rank(n, pod, nil, costs), Admitted
	case len(n.Slices) == 0:
		return nil, 0, NoSlices
	case len(containers) == 1 && containers[0].VGPUs == 1:
		return p.placeOne(n, pod, costs, found)
	case len(containers) == 1:
		return p.placeSeveral(n, pod, costs, found)
	}
	s := search{packer: *p, node: n.Clone(), pod: pod, chosen: found, budget: searchBudget}
	if !s.placeContainer(0) {
		return nil, 0, s.refusal()
	}
	return s.chosen, p.rank(n, pod, s.chosen, costs), Admitted
}

// rank returns the rank of the choices, from the costs of the node, or from the ranker if costs is nil. Three things come before that cost:
// the pod's preference for full or empty devices, the weights that would have to be loaded, and, for a pod of class swap, slices that are
// of that class already.
func (p *Packer) rank(n *Node, pod *Pod, choices []Choice, costs *nodeCosts) Rank {
	if costs != nil {
		return costs.Rank(n, pod, choices).with(n, pod, choices)
	}
	return p.Ranker.Rank(n, pod, choices).with(n, pod, choices)
}

// Admits reports whether the node in its present state admits a plan that was made for an earlier state.
func (p Packer) Admits(n *Node, pod *Pod, plan Plan) bool {
	n = n.Clone()
	for c, picks := range plan {
		ask := p.shareRequest(pod, c)
		for _, pick := range picks {
			class, refusal := p.Rules.AdmitOn(n, pick.Slice, ask)
			if refusal != Admitted || class != pick.Class {
				return false
			}
			n.Loads[pick.Slice].Add(ask.resident(p.Rules.Model, class))
		}
	}
	return true
}

// placeOne places a pod of a single vGPU on the best slice.
func (p *Packer) placeOne(n *Node, pod *Pod, costs *nodeCosts, found []Choice) ([]Choice, Rank, Refusal) {
	var space [8]option
	options, refusal := p.options(n, pod, 0, costs, space[:0])
	if len(options) == 0 {
		return nil, 0, refusal
	}
	best := slices.MinFunc(options, compareOptions)
	return append(found, Choice{Pick: best.Pick}), best.rank, Admitted
}

// placeSeveral places a pod of one container with several vGPUs on the best slices of different devices. It needs no backtracking: the
// vGPUs are equal and on different slices.
func (p *Packer) placeSeveral(n *Node, pod *Pod, costs *nodeCosts, found []Choice) ([]Choice, Rank, Refusal) {
	s := search{packer: *p, node: n, pod: pod, chosen: found}
	for _, o := range s.sortedOptions(0, costs) {
		if !s.isDeviceTaken(0, o.Slice) {
			s.chosen = append(s.chosen, Choice{Pick: o.Pick})
		}
		if len(s.chosen) == pod.Request.Containers[0].VGPUs {
			return s.chosen, p.rank(n, pod, s.chosen, costs), Admitted
		}
	}
	return nil, 0, s.refusal()
}

// repeatsPrevious reports whether slice i and the one before it are equal and empty, so that a share is admitted and ranked alike on both.
// It is false for MIG instances that are created on demand, because other instances on the device can prevent that.
func (n *Node) repeatsPrevious(i int) bool {
	return i > 0 && n.Slices[i].MemorySlices == 0 && n.Slices[i-1].MemorySlices == 0 && n.Loads[i].Empty() && n.Loads[i-1].Empty() &&
		n.Slices[i].equalsExceptID(&n.Slices[i-1])
}

// equalsExceptID reports whether two slices differ in their ID and device only.
func (s *Slice) equalsExceptID(o *Slice) bool {
	return s.Model == o.Model && s.Profile == o.Profile && s.Memory == o.Memory && s.Healthy == o.Healthy &&
		s.Reserve == o.Reserve && s.MaxShares == o.MaxShares && s.Gamma == o.Gamma && s.MixTenants == o.MixTenants && s.Locality == o.Locality && s.Store == o.Store &&
		s.Swap == o.Swap && slices.Equal(s.Classes, o.Classes)
}

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
