package packing

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// searchBudget bounds the slices tried for one pod with several vGPUs on one node. The greedy order needs one for each vGPU,
// and a few where it steps back; a pod made to be searched for long must not hold up the scheduler on thousands of nodes.
const searchBudget = 4 * share.MaxVGPUs

// Packer places pods on nodes by rules of admission and a preference among what they admit.
type Packer struct {
	Rules  Rules
	Ranker Ranker
}

// Place finds the best slices of the node for the whole pod, or the most telling reason why there are none. All vGPUs of a
// container go to different devices; all containers are placed or none. A pod that asks for no GPU is ranked by what it
// leaves to those that do.
func (p Packer) Place(n *Node, pod *Pod) (Plan, Rank, Refusal) {
	choices, rank, refusal := p.place(n, pod, nil, nil)
	if refusal != Admitted {
		return nil, 0, refusal
	}
	return planOf(pod, choices), rank, Admitted
}

func planOf(pod *Pod, choices []Choice) Plan {
	plan := make(Plan, len(pod.Request.Containers))
	for _, c := range choices {
		plan[c.Container] = append(plan[c.Container], c.Pick)
	}
	return plan
}

// place is Place before the plan is written down: it appends the choices to found. Where look is not nil, it is the packer's
// ranker for this very node.
func (p *Packer) place(n *Node, pod *Pod, look *survey, found []Choice) ([]Choice, Rank, Refusal) {
	switch containers := pod.Request.Containers; {
	case len(containers) == 0:
		return found, p.rank(n, pod, nil, look), Admitted
	case len(n.Slices) == 0:
		return nil, 0, NoSlices
	case len(containers) == 1 && containers[0].VGPUs == 1:
		return p.placeOne(n, pod, look, found)
	case len(containers) == 1:
		return p.placeSeveral(n, pod, look, found)
	}
	s := search{packer: *p, node: n.Clone(), pod: pod, chosen: found, budget: searchBudget}
	if !s.container(0) {
		return nil, 0, s.refusal()
	}
	return s.chosen, p.rank(n, pod, s.chosen, look), Admitted
}

func (p *Packer) rank(n *Node, pod *Pod, choices []Choice, look *survey) Rank {
	if look != nil {
		return look.Rank(n, pod, choices)
	}
	return p.Ranker.Rank(n, pod, choices)
}

// Admits says whether the node takes the pod just as it was planned for another state of the node.
func (p Packer) Admits(n *Node, pod *Pod, plan Plan) bool {
	n = n.Clone()
	for c, picks := range plan {
		ask := p.ask(pod, c)
		for _, pick := range picks {
			class, refusal := p.Rules.Admit(&n.Slices[pick.Slice], &n.Loads[pick.Slice], ask)
			if refusal != Admitted || class != pick.Class || n.shadowed(pick.Slice) {
				return false
			}
			n.Loads[pick.Slice].Add(Resident{Tenant: pod.Tenant, Model: p.Rules.Model, Class: class, Share: ask.Share})
		}
	}
	return true
}

func (p *Packer) placeOne(n *Node, pod *Pod, look *survey, found []Choice) ([]Choice, Rank, Refusal) {
	var space [8]option
	options, refusal := p.options(n, pod, 0, look, space[:0])
	if len(options) == 0 {
		return nil, 0, refusal
	}
	best := slices.MinFunc(options, byRank)
	return append(found, Choice{Pick: best.Pick}), best.rank, Admitted
}

// placeSeveral places the vGPUs of a pod's only container on the best slices of different devices. As the vGPUs are equal and
// take nothing from each other, nothing need be tried twice.
func (p *Packer) placeSeveral(n *Node, pod *Pod, look *survey, found []Choice) ([]Choice, Rank, Refusal) {
	s := search{packer: *p, node: n, pod: pod, chosen: found}
	for _, o := range s.sortedOptions(0, look) {
		if !s.deviceTaken(0, o.Slice) {
			s.chosen = append(s.chosen, Choice{Pick: o.Pick})
		}
		if len(s.chosen) == pod.Request.Containers[0].VGPUs {
			return s.chosen, p.rank(n, pod, s.chosen, look), Admitted
		}
	}
	return nil, 0, s.refusal()
}

// twinBefore says that an empty slice just like this one came directly before it, so that asking again would tell nothing.
func (n *Node) twinBefore(i int) bool {
	return i > 0 && n.Slices[i].Room == 0 && n.Loads[i].Empty() && n.Loads[i-1].Empty() && n.Slices[i].sameKind(&n.Slices[i-1])
}

func (s *Slice) sameKind(o *Slice) bool {
	return s.Model == o.Model && s.Profile == o.Profile && s.Memory == o.Memory && s.Healthy == o.Healthy &&
		s.Reserve == o.Reserve && s.MaxShares == o.MaxShares && slices.Equal(s.Classes, o.Classes)
}
