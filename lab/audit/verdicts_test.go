package audit

import (
	"math/rand/v2"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestVerdictsChangeNoAnswer asks one slice about shares in random order; each answer must be that of the solver.
func TestVerdictsChangeNoAnswer(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	solver := slot.NewSolver()
	learned, asked := 0, 0
	for range 50 {
		s := &slice{Slice: gpu("x")}
		s.Reserve = kube.DefaultReserve
		for range 2 + random.IntN(3) {
			s.add(heldShare{packing: kube.Slots, share: randomShare(random)})
		}
		f := newFinalState(nil, Options{})
		for range 100 {
			sh := randomShare(random)
			want := solver.Fits(itemsOf(s.shares(sh)), s.Reserve)
			if got := f.fitsBeside(s, sh, kube.Slots); got != want {
				t.Fatalf("%v on %v: %v, want %v", sh, s.shares(), got, want)
			}
			asked++
		}
		learned += len(s.cached.fit) + len(s.cached.unfit)
	}
	t.Logf("%d tests for %d answers", learned, asked)
}

func randomShare(random *rand.Rand) share.Share {
	quota := 10 * share.PerMille(1+random.IntN(60))
	if random.IntN(4) == 0 {
		quota = share.Whole - 10*share.PerMille(random.IntN(5))
	}
	return shareOf(10*share.PerMille(1+random.IntN(40)), quota)
}

// TestFullQuotaIsItsOwnCase: beside shares that take turns, all of the time may be had where 99 % of it may not.
func TestFullQuotaIsItsOwnCase(t *testing.T) {
	c := newCluster(t)
	c.node("x", gpu("x0"))
	c.several(2, spec{node: "x", slices: []string{"x0"}, sm: 60, quota: 40})
	r := c.check()
	for _, test := range []struct {
		quota int64
		nodes int
	}{{100, 1}, {99, 0}, {100, 1}, {95, 1}, {99, 0}} {
		if got := r.Admissible(c.make(spec{sm: 40, quota: test.quota})); len(got) != test.nodes {
			t.Errorf("quota %d: %v", test.quota, got)
		}
	}
}
