package slot

import (
	"fmt"
	"testing"
)

// Three halves of 60 % take exactly 0.9 of a window. The best prices, one half each, prove that 0.899 is too little and
// must not prove anything about 0.9.
func TestProofStopsAtTheLimit(t *testing.T) {
	for limit, want := range map[int]bool{899: true, 900: false} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			g := new(program)
			g.collectPartials(copies(3, percent(50, 60)), 1000, 900)
			g.limit = limit
			g.price[0], g.price[1], g.price[2] = 0.5, 0.5, 0.5
			if _, proof := g.priceOut(); proof != want {
				t.Errorf("limit %d: proof = %v, want %v", limit, proof, want)
			}
		})
	}
}

// An accept must not rest on times that leave a share short, whatever their sum says.
func TestAcceptedChecksEveryQuota(t *testing.T) {
	g := new(program)
	g.collectPartials(copies(3, percent(50, 60)), 1000, 900)
	g.basis[0], g.basis[1], g.basis[2] = 0b011, 0b110, 0b101
	g.time[0], g.time[1], g.time[2] = 300, 300, 300
	if g.verify() != fits {
		t.Error("the exact solution is refused")
	}
	g.time[1] = 299
	if g.verify() != unknown {
		t.Error("a solution that is a per mille short is accepted")
	}
}

func TestTrimmedTakesFromTheLongestRun(t *testing.T) {
	got := trimLongest([]run{{0b01, 5}, {0b10, 9}}, -2)
	if got[0].length != 5 || got[1].length != 7 {
		t.Errorf("trimmed by 2 ns: %v", got)
	}
}
