package packing

import (
	"slices"

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
