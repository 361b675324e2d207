package bound

import (
	"math/rand/v2"
	"slices"
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

// Without pods there is nothing to accept.
func TestAcceptingNothing(t *testing.T) {
	p := NewProblem([]cluster.Node{node(8, 8, 1, "G2")}, nil)
	if limit, packed := p.AcceptingLimit(), p.PackAccepting(1); limit != 0 || packed != 0 {
		t.Errorf("limit of %d, %d packed, want nothing", limit, packed)
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
	below, pivots := 0, 0
	for i := range 300 {
		nodes, pods := tiny(r)
		best := exhaustAccepting(nodes, pods)
		p := NewProblem(nodes, pods)
		limit, accepting := p.Solve().Milli, p.AcceptingLimit()
		if accepting < best {
			t.Fatalf("%d: limit of %d, but %d can be allocated: %+v %+v", i, accepting, best, nodes, pods)
		}
		if accepting < limit {
			below++
		}
		if accepting < p.Accepting().Solve().Milli {
			pivots++
		}
	}
	if below < 20 || pivots < 2 {
		t.Errorf("in %d of 300 clusters the limit is below that of a policy that may refuse, in %d by the time of a refusal", below, pivots)
	}
}

// exhaustAccepting returns the most that is allocated by any choice of nodes and devices where no pod is refused that fits.
func exhaustAccepting(nodes []cluster.Node, pods []cluster.Pod) int64 {
	s := newSearch(nodes, pods)
	s.accepts = true
	s.place(0, 0, true)
	return s.best
}

// Pods of 600 thousandths are of no use to the GPUs, but as long as there is room for one of 1000 there is room for them. Small pods could
// close devices to both, so that the limit of Accepting does not see that.
func TestAcceptingLimitTakesNoLargerPodsAlone(t *testing.T) {
	pods := repeat(40, pod(1, 1, 1, 500))
	for range 40 {
		pods = append(pods, pod(1, 1, 1, 600), pod(1, 1, 1, 1000))
	}
	p := NewProblem(slices.Repeat([]cluster.Node{node(96, 384, 8, "G2")}, 10), pods)
	if got := p.Accepting().Solve().Milli; got < 71_900 {
		t.Errorf("limit of %d without the time of a refusal, want 72000: 40 devices of the largest pods, 20 of the smallest", got)
	}
	if got := p.AcceptingLimit(); got < 68_000 || got > 69_000 {
		t.Errorf("limit of %d, want 68000, 30 of each of the two kinds, and a little for the width between checkpoints", got)
	}
}
