package packing

import (
	"cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// option is a slice that admits one share of a container, with the values by which it is ranked.
type option struct {
	Pick
	rank              Rank
	left              MilliGPU
	free              share.Bytes // free memory of a GPU that the container gets for itself, if it has several vGPUs; otherwise 0
	size              int         // memory slices of the MIG instance to be created; 0 if the slice exists
	fragmentationCost int         // of creating that instance
}

// compareOptions orders slices for a share: the better rank first, then the slice with the least SM-time left, then, of GPUs that a
// container with several vGPUs gets for itself, the one with the most free memory, then an existing MIG instance before the smallest new
// one, then the lower fragmentation cost, then the lower index.
func compareOptions(a, b option) int {
	switch {
	case a.rank != b.rank:
		return cmp.Compare(a.rank, b.rank)
	case a.left != b.left:
		return cmp.Compare(a.left, b.left)
	case a.free != b.free:
		return compareFreeMemory(a.free, b.free)
	case a.size != b.size:
		return cmp.Compare(a.size, b.size)
	case a.fragmentationCost != b.fragmentationCost:
		return cmp.Compare(a.fragmentationCost, b.fragmentationCost)
	}
	return cmp.Compare(a.Slice, b.Slice)
}

// options appends to found the slices that admit one share of a container, each with its rank. If there are none, it returns the most
// informative refusal.
func (p *Packer) options(n *Node, pod *Pod, container int, costs *nodeCosts, found []option) ([]option, Refusal) {
	ask := p.shareRequest(pod, container)
	area := ask.area()
	var worst, static Refusal
	var class share.Isolation
	var kind *Slice // the slice that class and static were computed for
	for i := range n.Slices {
		s, l := &n.Slices[i], &n.Loads[i]
		if l.requested+area > share.WholeArea || n.repeatsPrevious(i) && !pod.looksAtDevices() {
			continue
		}
		if kind == nil || !s.equalsExceptID(kind) {
			class, static = p.Rules.admitEmpty(s, ask)
			kind = s
		}
		refusal := static
		if refusal == Admitted {
			refusal = p.Rules.admitBeside(s, l, ask, class)
		}
		if refusal == Admitted {
			refusal = n.checkDevice(i, ask)
		}
		if worst = max(worst, refusal); refusal == Admitted {
			found = append(found, option{Pick: Pick{Slice: i, Class: class}, left: n.largestRequest(i) - milliGPUOf(area)})
		}
	}
	if len(found) == 0 {
		return nil, max(worst, p.refusalOfFull(n, ask))
	}
	p.rankAll(n, pod, container, costs, found)
	if pod.Request.Containers[container].VGPUs > 1 {
		p.preferFreeMemory(n, ask.Share, found)
	}
	n.addFragmentationCosts(found)
	return found, Admitted
}

// admitBeside returns why the share does not fit beside the shares on the slice, or Admitted. The class is the one returned by admitEmpty.
func (r Rules) admitBeside(s *Slice, l *Load, a ShareRequest, class share.Isolation) Refusal {
	if refusal := r.checkNeighbours(s, l, a, class); refusal != Admitted {
		return refusal
	}
	return r.checkCapacity(s, l, a)
}

// refusalOfFull returns the most informative refusal of the slices without enough free SM-time, which is at most NoSMTime.
func (p *Packer) refusalOfFull(n *Node, ask ShareRequest) (worst Refusal) {
	for i := range n.Slices {
		if worst < NoSMTime && n.Loads[i].requested+ask.area() > share.WholeArea {
			_, refusal := p.Rules.Admit(&n.Slices[i], &n.Loads[i], ask)
			worst = max(worst, refusal)
		}
	}
	return worst
}

// rankAll ranks each option as if its slice were the only one taken.
func (p *Packer) rankAll(n *Node, pod *Pod, container int, costs *nodeCosts, options []option) {
	b, ok := p.Ranker.(Balance)
	if !ok {
		for i := range options {
			options[i].rank = p.rank(n, pod, []Choice{{Pick: options[i].Pick, Container: container}}, nil)
		}
		return
	}
	if costs == nil { // value the node once for all of its slices
		costs = b.costsOf(n)
		defer costs.release()
	}
	for i := range options {
		choice := [1]Choice{{Pick: options[i].Pick, Container: container}} // an array stays on the stack: this is the hottest line of the package
		options[i].rank = costs.Rank(n, pod, choice[:]).with(n, pod, choice[:])
	}
}

// shareRequest returns the request for one share of a container.
func (p *Packer) shareRequest(pod *Pod, container int) ShareRequest {
	return ShareRequest{Tenant: pod.Tenant, Terms: pod.Request.TermsOf(container), Share: pod.Request.Containers[container].Share}
}
