package packing

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// searchBudget is the number of slices tried for a pod of several containers on one node. The greedy order needs one for each
// vGPU, and a few more where it backtracks; no pod may occupy the scheduler for longer on thousands of nodes.
const searchBudget = 4 * share.MaxVGPUs

// Packer places pods on nodes: Rules decide what is admitted, Ranker prefers among that.
type Packer struct {
	Rules  Rules
	Ranker Ranker
}

// Place returns the best slices of the node for the whole pod, or the most informative refusal. The vGPUs of a container are
// placed on different devices; either all containers are placed or none. A pod without vGPUs is ranked by what it leaves to GPU
// pods.
func (p Packer) Place(n *Node, pod *Pod) (Plan, Rank, Refusal) {
	choices, rank, refusal := p.place(n, pod, nil, nil)
	if refusal != Admitted {
		return nil, 0, refusal
	}
	return planOf(pod, choices), rank, Admitted
}

// planOf returns the choices by container.
func planOf(pod *Pod, choices []Choice) Plan {
	plan := make(Plan, len(pod.Request.Containers))
	for _, c := range choices {
		plan[c.Container] = append(plan[c.Container], c.Pick)
	}
	return plan
}

// place does the work of Place: it appends the choices to found. A survey, where not nil, is of this very node and replaces the
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

// rank returns the rank of the choices, from the survey if there is one.
func (p *Packer) rank(n *Node, pod *Pod, choices []Choice, costs *nodeCosts) Rank {
	if costs != nil {
		return costs.Rank(n, pod, choices)
	}
	return p.Ranker.Rank(n, pod, choices)
}

// Admits reports whether the node, in its present state, admits a plan that was made for an earlier one.
func (p Packer) Admits(n *Node, pod *Pod, plan Plan) bool {
	n = n.Clone()
	for c, picks := range plan {
		ask := p.shareRequest(pod, c)
		for _, pick := range picks {
			class, refusal := p.Rules.Admit(&n.Slices[pick.Slice], &n.Loads[pick.Slice], ask)
			if refusal != Admitted || class != pick.Class || n.isBlocked(pick.Slice) {
				return false
			}
			n.Loads[pick.Slice].Add(Resident{Tenant: pod.Tenant, Model: p.Rules.Model, Class: class, Share: ask.Share})
		}
	}
	return true
}

// placeOne places a pod of one vGPU on the best slice.
func (p *Packer) placeOne(n *Node, pod *Pod, costs *nodeCosts, found []Choice) ([]Choice, Rank, Refusal) {
	var space [8]option
	options, refusal := p.options(n, pod, 0, costs, space[:0])
	if len(options) == 0 {
		return nil, 0, refusal
	}
	best := slices.MinFunc(options, compareOptions)
	return append(found, Choice{Pick: best.Pick}), best.rank, Admitted
}

// placeSeveral places the vGPUs of the only container of a pod on the best slices of different devices. It does not backtrack: the
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

// repeatsPrevious reports whether the slice and the one before it are equal and empty, so that both get the same answer.
func (n *Node) repeatsPrevious(i int) bool {
	return i > 0 && n.Slices[i].MemorySlices == 0 && n.Loads[i].Empty() && n.Loads[i-1].Empty() && n.Slices[i].equalsExceptID(&n.Slices[i-1])
}

// sameKind reports whether two slices differ in their identity only.
func (s *Slice) equalsExceptID(o *Slice) bool {
	return s.Model == o.Model && s.Profile == o.Profile && s.Memory == o.Memory && s.Healthy == o.Healthy &&
		s.Reserve == o.Reserve && s.MaxShares == o.MaxShares && slices.Equal(s.Classes, o.Classes)
}
