package packing

import (
	"sync"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// survey is a Balance that has looked at one node and can value many choices on it. Once made it is only read.
type survey struct {
	Balance
	before view
	cost   ppmMilli // of the node as it is
	space  [16]freeSlice
}

var surveys = sync.Pool{New: func() any { return new(survey) }}

// survey looks at the node. The caller gives the survey back by done.
func (b Balance) survey(n *Node) *survey {
	s := surveys.Get().(*survey)
	s.look(b, n)
	return s
}

func (s *survey) done() {
	s.Balance = Balance{} // the pool keeps no demand alive
	surveys.Put(s)
}

func (s *survey) look(b Balance, n *Node) {
	s.Balance = b
	b.Demand.viewOf(n, &s.before, s.space[:0])
	s.cost = s.costAfter(nil, 0, 0)
}

// Rank implements Ranker for the node that was surveyed.
func (s *survey) Rank(_ *Node, pod *Pod, picks []Choice) Rank {
	var space [1]turn // of most pods
	turns := s.Demand.turns(&s.before, pod, picks, space[:0])
	cost := s.costAfter(turns, pod.CPU, pod.RAM) - s.cost
	if s.Terms.Stranding {
		cost += s.Demand.strandedBy(turns) / 2
	}
	if s.Terms.Scarcity {
		cost += s.before.scarcity(pod, picks)
	}
	return rankOf(int64(cost), s.tightness(s.before.timeAfter(turns), s.before.cpu-pod.CPU))
}

// costAfter adds up the terms that value the node as a whole, once the slices have turned and so much CPU and memory is taken.
func (s *survey) costAfter(turns []turn, cpu MilliCPU, ram share.Bytes) ppmMilli {
	var cost ppmMilli
	if s.Terms.Fragmentation {
		cost += s.Demand.fragmentationAfter(&s.before, turns, cpu, ram)
	}
	if s.Terms.CPUShortage {
		cost += s.Demand.shortage(s.before.timeAfter(turns), s.before.cpu-cpu)
	}
	return cost
}
