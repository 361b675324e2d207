package packing

import (
	"cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// option is a slice that admits the container's share, with its rank were it the only pick.
type option struct {
	Pick
	rank Rank
	left MilliGPU
	size int // memory slices of an instance that is to be made for it; 0: none is
	harm int // that the instance does to those that come after it on its GPU
}

// byRank prefers the better rank, then the slice with the least left over, then the instance that is there or the smallest one,
// then the one that does least harm, then the lower index.
func byRank(a, b option) int {
	switch {
	case a.rank != b.rank:
		return cmp.Compare(a.rank, b.rank)
	case a.left != b.left:
		return cmp.Compare(a.left, b.left)
	case a.size != b.size:
		return cmp.Compare(a.size, b.size)
	case a.harm != b.harm:
		return cmp.Compare(a.harm, b.harm)
	}
	return cmp.Compare(a.Slice, b.Slice)
}

// options appends to found the slices that admit one share of a container, or tells the most telling reason why there are none.
func (p *Packer) options(n *Node, pod *Pod, container int, look *survey, found []option) ([]option, Refusal) {
	ask := p.ask(pod, container)
	area := ask.Share.RequestArea()
	var worst, static Refusal
	var class share.Isolation
	var kind *Slice // that class and static are about
	for i := range n.Slices {
		s, l := &n.Slices[i], &n.Loads[i]
		if l.requested+area > share.WholeArea || n.twinBefore(i) {
			continue
		}
		if kind == nil || !s.sameKind(kind) {
			class, static = p.Rules.static(s, ask)
			kind = s
		}
		refusal := static
		if refusal == Admitted {
			refusal = p.Rules.admitLoad(s, l, ask, class)
		}
		if refusal == Admitted && n.shadowed(i) {
			refusal = NoRoom
		}
		if worst = max(worst, refusal); refusal == Admitted {
			found = append(found, option{Pick: Pick{Slice: i, Class: class}, left: n.free(i) - milli(area)})
		}
	}
	if len(found) == 0 {
		return nil, max(worst, p.refusalOfFull(n, ask))
	}
	p.rankAll(n, pod, container, look, found)
	n.weigh(found)
	return found, Admitted
}

// admitLoad is Admit for a slice that passes static.
func (r Rules) admitLoad(s *Slice, l *Load, a Ask, class share.Isolation) Refusal {
	if refusal := r.compatible(s, l, a, class); refusal != Admitted {
		return refusal
	}
	return r.room(s, l, a.Share)
}

// refusalOfFull is the most telling reason of the slices without the SM-time for the share. None tells more than NoRoom.
func (p *Packer) refusalOfFull(n *Node, ask Ask) (worst Refusal) {
	for i := range n.Slices {
		if worst < NoRoom && n.Loads[i].requested+ask.Share.RequestArea() > share.WholeArea {
			_, refusal := p.Rules.Admit(&n.Slices[i], &n.Loads[i], ask)
			worst = max(worst, refusal)
		}
	}
	return worst
}

// rankAll ranks each of the options as if it were the only pick.
func (p *Packer) rankAll(n *Node, pod *Pod, container int, look *survey, options []option) {
	b, ok := p.Ranker.(Balance)
	if !ok {
		for i := range options {
			options[i].rank = p.Ranker.Rank(n, pod, []Choice{{Pick: options[i].Pick, Container: container}})
		}
		return
	}
	if look == nil { // look at the node once for all of its slices
		look = b.survey(n)
		defer look.done()
	}
	for i := range options {
		choice := [1]Choice{{Pick: options[i].Pick, Container: container}} // stays on the stack: this is the busiest line of all
		options[i].rank = look.Rank(n, pod, choice[:])
	}
}

func (p *Packer) ask(pod *Pod, container int) Ask {
	return Ask{Tenant: pod.Tenant, Terms: pod.Request.Terms, Share: pod.Request.Containers[container].Share}
}
