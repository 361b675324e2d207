package bound

import (
	"math/rand/v2"
	"testing"

	"github.com/gshare-dev/gshare/lab/cluster"
)

// The first pod fits an empty device, so that it takes the place of two others.
func TestAcceptingByHand(t *testing.T) {
	p := NewProblem([]cluster.Node{node(8, 8, 1, "G2")}, []cluster.Pod{pod(1, 1, 1, 600), pod(1, 1, 1, 500), pod(1, 1, 1, 500)})
	if got := p.Solve().Milli; got != 1000 {
		t.Errorf("limit of %d where pods may be refused, want 1000", got)
	}
	if got := p.Accepting().Solve().Milli; got != 600 {
		t.Errorf("limit of %d where what fits is accepted, want 600", got)
	}
}

// A pod that comes last may find everything closed.
func TestAcceptingMayRefuseTheLast(t *testing.T) {
	p := NewProblem([]cluster.Node{node(8, 8, 1, "G2")}, []cluster.Pod{pod(1, 1, 1, 500), pod(1, 1, 1, 500), pod(1, 1, 1, 600)})
	for _, s := range p.Accepting().shapes {
		if s.milli == 600 && s.must {
			t.Error("the pod of 600 thousandths must be accepted, but the device may be full")
		}
	}
}

// No sequence of decisions that accepts what fits is above the limit.
func TestAcceptingHoldsAgainstEveryDecision(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	below := 0
	for i := range 300 {
		nodes, pods := tiny(r)
		best := exhaustAccepting(nodes, pods)
		p := NewProblem(nodes, pods)
		limit, accepting := p.Solve().Milli, p.Accepting().Solve().Milli
		if accepting < best {
			t.Fatalf("%d: limit of %d, but %d can be allocated: %+v %+v", i, accepting, best, nodes, pods)
		}
		if accepting < limit {
			below++
		}
	}
	if below < 20 {
		t.Errorf("in %d of 300 clusters the limit is below that of a policy that may refuse", below)
	}
}

// exhaustAccepting returns the most that is allocated by any choice of nodes and devices where no pod is refused that fits.
func exhaustAccepting(nodes []cluster.Node, pods []cluster.Pod) int64 {
	s := newSearch(nodes, pods)
	s.accepts = true
	s.place(0, 0, true)
	return s.best
}
