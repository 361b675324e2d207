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
	if len(pod.Request.Containers) == 0 {
		return Plan{}, p.Ranker.Rank(n, pod, nil), Admitted
	}
	if len(n.Slices) == 0 {
		return nil, 0, NoSlices
	}
	if len(pod.Request.Containers) == 1 && pod.Request.Containers[0].VGPUs == 1 {
		return p.placeOne(n, pod)
	}
	s := search{packer: p, node: n.Clone(), pod: pod, budget: searchBudget}
	if !s.container(0) {
		return nil, 0, s.refusal()
	}
	return s.plan(), p.Ranker.Rank(n, pod, s.chosen), Admitted
}

// Admits says whether the node takes the pod just as it was planned for another state of the node.
func (p Packer) Admits(n *Node, pod *Pod, plan Plan) bool {
	n = n.Clone()
	for c, picks := range plan {
		ask := p.ask(pod, c)
		for _, pick := range picks {
			class, refusal := p.Rules.Admit(&n.Slices[pick.Slice], &n.Loads[pick.Slice], ask)
			if refusal != Admitted || class != pick.Class {
				return false
			}
			n.Loads[pick.Slice].Add(Resident{Tenant: pod.Tenant, Model: p.Rules.Model, Class: class, Share: ask.Share})
		}
	}
	return true
}

func (p Packer) placeOne(n *Node, pod *Pod) (Plan, Rank, Refusal) {
	var space [8]option
	options, refusal := p.options(n, pod, 0, space[:0])
	if len(options) == 0 {
		return nil, 0, refusal
	}
	best := slices.MinFunc(options, byRank)
	return Plan{{best.Pick}}, best.rank, Admitted
}

// option is a slice that admits the container's share, with its rank were it the only pick.
type option struct {
	Pick
	rank Rank
	left MilliGPU
}

// byRank prefers the better rank, then the slice with the least left over, then the lower index.
func byRank(a, b option) int {
	switch {
	case a.rank != b.rank:
		return compare(a.rank, b.rank)
	case a.left != b.left:
		return compare(a.left, b.left)
	}
	return compare(a.Slice, b.Slice)
}

func compare[T ~int | ~int64](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// options appends to found the slices that admit one share of a container.
func (p Packer) options(n *Node, pod *Pod, container int, found []option) ([]option, Refusal) {
	ask := p.ask(pod, container)
	var worst Refusal
	ranker := p.Ranker
	var choice []Choice
	for i := range n.Slices {
		if n.twinBefore(i) {
			continue
		}
		class, refusal := p.Rules.Admit(&n.Slices[i], &n.Loads[i], ask)
		worst = max(worst, refusal)
		if refusal == Admitted {
			if b, ok := ranker.(Balance); ok { // look at the node once for all of its slices
				s := b.survey(n)
				defer s.done()
				ranker = s
			}
			choice = append(choice[:0], Choice{Pick: Pick{Slice: i, Class: class}, Container: container})
			rank := ranker.Rank(n, pod, choice)
			found = append(found, option{Pick: choice[0].Pick, rank: rank, left: n.free(i) - milli(ask.Share.RequestArea())})
		}
	}
	return found, worst
}

func (p Packer) ask(pod *Pod, container int) Ask {
	return Ask{Tenant: pod.Tenant, Terms: pod.Request.Terms, Share: pod.Request.Containers[container].Share}
}

// twinBefore says that an empty slice just like this one came directly before it, so that asking again would tell nothing.
func (n *Node) twinBefore(i int) bool {
	return i > 0 && n.Loads[i].Empty() && n.Loads[i-1].Empty() && n.Slices[i].sameKind(&n.Slices[i-1])
}

func (s *Slice) sameKind(o *Slice) bool {
	return s.Model == o.Model && s.Profile == o.Profile && s.Memory == o.Memory && s.Healthy == o.Healthy &&
		s.Reserve == o.Reserve && s.MaxShares == o.MaxShares && slices.Equal(s.Classes, o.Classes)
}
