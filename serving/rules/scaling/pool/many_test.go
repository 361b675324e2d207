package pool

import (
	"math/rand/v2"
	"testing"

	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// TestMany: of many instances the next step is the same as if all were compared with all.
func TestMany(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	phases := []Phase{Starting, Ready, Failed, Draining}
	steps := map[Verb]int{}
	for range 500 {
		var want []scaling.Instance
		var have []Instance
		for id := range scaling.ID(many + r.IntN(40)) {
			if r.IntN(20) > 0 {
				want = append(want, scaling.Instance{ID: id + 1, Configuration: good})
			}
			if r.IntN(20) > 0 {
				have = append(have, instance(id+1, phases[r.IntN(4)%(1+r.IntN(4))], scaling.Residency(r.IntN(3)), 0))
			}
		}
		p := Policy{Retain: r.IntN(2) == 0}
		indexed, plain := round{policy: p, want: want, have: have}, round{policy: p, want: want, have: have}
		indexed.index()
		for at, rules := range [][2]func() (Step, bool){{indexed.restore, plain.restore}, {indexed.fill, plain.fill}, {indexed.shrink, plain.shrink}} {
			a, is := rules[0]()
			b, was := rules[1]()
			if a != b || is != was {
				t.Fatalf("rule %d: %+v, %t, want %+v, %t", at, a, is, b, was)
			}
			steps[a.Do]++
		}
	}
	for _, v := range []Verb{Start, Adopt, Promote, Stop} {
		if steps[v] == 0 {
			t.Errorf("no step is to %s", v)
		}
	}
}
