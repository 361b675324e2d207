package residency_test

import (
	"math/rand/v2"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestTurns has instances on a slice of class swap start, be raised, be parked and end in random order, as far as FitsTurn allows. One at most has a turn, what
// they hold fits the slice, and where all are parked with no more than was set aside for each, any of them may have the next turn.
func TestTurns(t *testing.T) {
	const slice, kept = 16 * share.MiB, 1 * share.MiB
	random := rand.New(rand.NewPCG(22, 40))
	turns, waits := 0, 0
	for range 500 {
		held := map[int]residency.Holder{}
		others := func(but int) (all []residency.Holder) {
			for id, h := range held {
				if id != but {
					all = append(all, h)
				}
			}
			return all
		}
		for step := range 40 {
			id := random.IntN(5) // at most four others, each keeping one MiB: 12 MiB fit beside them
			h, started := held[id]
			switch {
			case !started:
				h = residency.Holder{Level: residency.Hot, Memory: share.Bytes(1+random.IntN(12)) * share.MiB}
				fallthrough
			case h.Level == residency.Warm:
				h.Level = []residency.Level{residency.Hot, residency.Shared}[random.IntN(2)]
				if !residency.FitsTurn(slice, h.Memory, others(id)) {
					waits++
					continue
				}
				held[id], turns = h, turns+1
			case random.IntN(3) == 0:
				delete(held, id)
			default:
				held[id] = residency.Holder{Level: residency.Warm, Memory: h.Memory, Kept: share.Bytes(random.IntN(2)) * kept}
			}
			all, having := others(-1), 0
			for _, h := range all {
				if h.Level != residency.Warm {
					having++
				}
			}
			if sum := residency.Held(all); sum > slice || having > 1 {
				t.Fatalf("step %d: %d bytes of %d are held, %d have a turn: %+v", step, sum, slice, having, held)
			}
			for id, h := range held {
				if having == 0 && !residency.FitsTurn(slice, h.Memory, others(id)) {
					t.Fatalf("step %d: all are parked, and %d cannot have a turn: %+v", step, id, held)
				}
			}
		}
	}
	if turns < 1000 || waits < 1000 {
		t.Errorf("the cases are one-sided: %d turns, %d waits", turns, waits)
	}
}

func TestFitsTurn(t *testing.T) {
	for name, test := range map[string]struct {
		memory share.Bytes
		others []residency.Holder
		want   bool
	}{
		"alone":                  {16, nil, true},
		"too large":              {17, nil, false},
		"beside one that serves": {1, []residency.Holder{{residency.Hot, 1, 0}}, false},
		"beside one in reserve":  {1, []residency.Holder{{residency.Shared, 1, 0}}, false},
		"beside one not known":   {1, []residency.Holder{{residency.Cold, 1, 0}}, false},
		"beside parked ones":     {14, []residency.Holder{{residency.Warm, 16, 1}, {residency.Warm, 8, 1}}, true},
		"they keep too much":     {15, []residency.Holder{{residency.Warm, 16, 1}, {residency.Warm, 8, 1}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := residency.FitsTurn(16, test.memory, test.others); got != test.want {
				t.Errorf("%t", got)
			}
		})
	}
}
