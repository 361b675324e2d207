package slot

import (
	"slices"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

const window = 100 * time.Millisecond

func TestSolveThreeHalves(t *testing.T) {
	table, ok := Solve(copies(3, percent(50, 60)), window, 50)
	if !ok || len(table.Turns) != 3 {
		t.Fatalf("Solve = %v, %v, want three turns", table, ok)
	}
	for _, turn := range table.Turns {
		if len(turn.Members) != 2 || turn.Duration != 30*time.Millisecond {
			t.Errorf("turn %v, want two members for 30 ms", turn)
		}
	}
}

func TestSolveTogether(t *testing.T) {
	table, ok := Solve([]Item{percent(30, 20), percent(70, 90)}, window, 50)
	if !ok || len(table.Turns) != 1 || table.Turns[0].Duration != window || !slices.Equal(table.Turns[0].Members, []int{0, 1}) {
		t.Errorf("Solve = %v, %v, want one turn of both for the whole window", table, ok)
	}
	if table, ok := Solve(nil, window, 50); !ok || len(table.Turns) != 0 || table.Window != window {
		t.Errorf("Solve(nothing) = %v, %v, want an empty table", table, ok)
	}
}

func TestSolveRefuses(t *testing.T) {
	two := copies(2, percent(50, 60))
	for _, w := range []time.Duration{-1, 0, longestWindow + 1} {
		if _, ok := Solve(two, w, 0); ok {
			t.Errorf("Solve accepts a window of %v", w)
		}
	}
	for name, items := range map[string][]Item{"exclusive": copies(3, percent(60, 40)), "invalid": {{}}} {
		t.Run(name, func(t *testing.T) {
			if table, ok := Solve(items, window, 0); ok || table.Turns != nil {
				t.Errorf("Solve = %v, %v", table, ok)
			}
		})
	}
}

// Tables of all families hold each quota exactly, and at most the SMs of the slice in each turn, whether the window divides evenly or not.
func TestTablesKeepTheRules(t *testing.T) {
	windows := []time.Duration{window, time.Second, 99_999_989, 1_000_003, 997, longestWindow}
	solver := NewSolver()
	forCrowds(t, 150, func(t *testing.T, items []Item, seed uint64) {
		w := windows[seed%uint64(len(windows))]
		for _, reserve := range []share.PerMille{0, 1, 50} {
			table, ok := Solve(items, w, reserve)
			if ok != solver.Fits(items, reserve) {
				t.Fatalf("Solve(%v, %v, %d) disagrees with Fits", items, w, reserve)
			}
			if ok {
				checkTable(t, items, table, w, reserve)
			}
		}
	})
}

func TestFullSchedulesHaveTables(t *testing.T) {
	for seed := range uint64(60) {
		for _, reserve := range reserves {
			items := cutSchedule(seed, 8+int(seed%12), int(reserve), 20)
			table, ok := Solve(items, window, reserve)
			if !ok {
				t.Fatalf("no table for %v at %d", items, reserve)
			}
			checkTable(t, items, table, window, reserve)
		}
	}
}

// checkTable holds a table against everything that Solve promises.
func checkTable(t *testing.T, items []Item, table Table, w time.Duration, reserve share.PerMille) {
	t.Helper()
	all, _, _ := sumSMs(items)
	turning := time.Duration(0) // items that take turns
	for _, i := range items {
		if i.Quota < share.Whole {
			turning++
		}
	}
	budget := w * time.Duration(share.Whole-reserve) / 1000
	switch {
	case all <= 1000:
		turning, budget = min(1, time.Duration(len(items))), w
	case reserve > 0:
		budget = min(w, budget+turning)
	}
	if table.Window != w || len(table.Turns) > int(turning) {
		t.Fatalf("%v: window %v, %d turns, want %v and at most %d", items, table.Window, len(table.Turns), w, turning)
	}
	if sum := sumOf(table); sum > budget {
		t.Fatalf("%v: turns take %v, want at most %v", items, sum, budget)
	}
	for _, turn := range table.Turns {
		checkTurn(t, items, turn)
	}
	missing := time.Duration(0)
	if all > 1000 && (reserve == 0 || w*time.Duration(reserve)/1000 < turning) {
		missing = turning
	}
	checkQuotas(t, items, table, missing)
}

func sumOf(table Table) time.Duration {
	sum := time.Duration(0)
	for _, turn := range table.Turns {
		sum += turn.Duration
	}
	return sum
}

// checkTurn: members ascend, their SMs fit, and the items with full quota are among them.
func checkTurn(t *testing.T, items []Item, turn Turn) {
	t.Helper()
	sms, last := share.PerMille(0), -1
	for _, at := range turn.Members {
		if at <= last || at >= len(items) {
			t.Fatalf("members %v of %d items", turn.Members, len(items))
		}
		sms, last = sms+items[at].SM, at
	}
	if sms > share.Whole || turn.Duration <= 0 {
		t.Fatalf("%v: turn of %d per mille SMs for %v", items, sms, turn.Duration)
	}
	for at, i := range items {
		if i.Quota == share.Whole && !slices.Contains(turn.Members, at) {
			t.Fatalf("%v: item %d has full quota and no part in %v", items, at, turn)
		}
	}
}

// checkQuotas: every item gets its quota, but for what rounding may cost. An item with full quota runs between turns
// too, so it is enough that it is in all of them.
func checkQuotas(t *testing.T, items []Item, table Table, missing time.Duration) {
	t.Helper()
	for at, i := range items {
		got := time.Duration(0)
		for _, turn := range table.Turns {
			if slices.Contains(turn.Members, at) {
				got += turn.Duration
			}
		}
		if i.Quota < share.Whole && (got+missing)*1000 < table.Window*time.Duration(i.Quota) {
			t.Fatalf("%v: item %d gets %v of %v", items, at, got, table.Window)
		}
	}
}

func TestOrderedKeepsNeighboursAlike(t *testing.T) {
	scattered := []run{{0b0011, 1}, {0b1100, 2}, {0b0110, 3}, {0b1001, 4}}
	got := orderRuns(scattered)
	if countChanges(got) != 8 {
		t.Errorf("%v changes %d pieces a window, want 8", got, countChanges(got))
	}
	if lengths := scattered[0].length + scattered[3].length; lengths != 5 {
		t.Error("the argument was reordered")
	}
}

func TestLength(t *testing.T) {
	cases := map[string]struct {
		items []Item
		want  float64
	}{
		"nothing":     {nil, 0},
		"one":         {[]Item{percent(50, 60)}, 0.6},
		"halves":      {copies(3, percent(50, 60)), 0.9},
		"exclusive":   {copies(3, percent(60, 40)), 1.2},
		"full quota":  {[]Item{percent(50, 100), percent(50, 30), percent(50, 40)}, 0.7},
		"eight":       {eight(), 1},
		"just full":   {copies(2, percent(50, 100)), 0},
		"odd cycle":   {copies(5, percent(40, 20)), 0.5},
		"many turns":  {copies(64, percent(60, 50)), 32},
		"many halves": {copies(63, percent(50, 50)), 15.75},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got, ok := Length(c.items); !ok || got < c.want-1e-9 || got > c.want+1e-9 {
				t.Errorf("Length = %v, %v, want %v", got, ok, c.want)
			}
		})
	}
	none := map[string][]Item{
		"invalid":     {{}},
		"no SMs left": {percent(60, 100), percent(50, 10)},
		"65 in turns": copies(65, percent(1, 1)),
	}
	for name, items := range none {
		t.Run(name, func(t *testing.T) {
			if got, ok := Length(items); ok {
				t.Errorf("Length = %v, want none", got)
			}
		})
	}
}
