package slot

import (
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// FuzzFits reads a reserve and items from bytes, valid or not. Nothing may panic; order must not matter; tables must
// keep the rules and exist exactly for sets that fit.
func FuzzFits(f *testing.F) {
	f.Add([]byte{50, 50, 60, 50, 60, 50, 60})
	f.Add([]byte{0, 60, 40, 60, 40, 60, 40})
	f.Add([]byte{0, 100, 100, 0, 0, 200, 3})
	f.Add([]byte{20, 12, 40, 12, 40, 12, 40, 12, 40, 24, 40, 24, 40, 50, 60, 50, 60})
	solver := NewSolver()
	f.Fuzz(func(t *testing.T, data []byte) {
		reserve, items := parse(data)
		fit := solver.Fits(items, reserve)
		slices.Reverse(items)
		if new(Solver).Fits(items, reserve) != fit {
			t.Fatalf("the verdict on %v at %d depends on the order", items, reserve)
		}
		table, ok := Solve(items, window, reserve)
		if ok != fit {
			t.Fatalf("Solve(%v, %d) disagrees with Fits", items, reserve)
		}
		if ok {
			checkTable(t, items, table, window, min(reserve, share.Whole))
		}
		Length(items)
	})
}

// parse takes the first byte as the reserve in per mille; then come SMs and quota in turn. A byte up to 100 is percent,
// larger ones reach all per mille, and a little beyond at both ends.
func parse(data []byte) (share.PerMille, []Item) {
	if len(data) == 0 {
		return 0, nil
	}
	reserve, data := share.PerMille(data[0]), data[1:min(len(data), 161)]
	var items []Item
	for k := 0; k+1 < len(data); k += 2 {
		items = append(items, Item{perMille(data[k]), perMille(data[k+1])})
	}
	return reserve, items
}

func perMille(b byte) share.PerMille {
	if b <= 100 {
		return share.PerMille(b) * 10
	}
	return share.PerMille(b-101)*7 - 20
}
