package slot

import (
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

var reserves = []share.PerMille{0, 50}

// forCrowds calls f with sets of every family whose area is near a slice's, where the answer is open.
func forCrowds(t *testing.T, each int, f func(t *testing.T, items []Item, seed uint64)) {
	for _, name := range familyNames() {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(each) {
				r := seeded(seed)
				f(t, crowd(families[name], r, 0.5+0.5*r.Float64()), seed)
			}
		})
	}
}

func TestOrderDoesNotMatter(t *testing.T) {
	forCrowds(t, 150, func(t *testing.T, items []Item, seed uint64) {
		other := shuffled(items, seeded(seed+1000))
		for _, reserve := range reserves {
			if new(Solver).Fits(items, reserve) != new(Solver).Fits(other, reserve) {
				t.Fatalf("the verdict on %v at %d depends on the order", items, reserve)
			}
			a, _ := Solve(items, 100_000_000, reserve)
			b, _ := Solve(other, 100_000_000, reserve)
			if !slices.EqualFunc(a.Turns, b.Turns, sameTurn(items, other)) {
				t.Fatalf("the table of %v at %d depends on the order", items, reserve)
			}
		}
	})
}

// sameTurn compares turns by what their members ask for.
func sameTurn(a, b []Item) func(Turn, Turn) bool {
	return func(x, y Turn) bool {
		return x.Duration == y.Duration && slices.Equal(demands(a, x), demands(b, y))
	}
}

func demands(items []Item, turn Turn) []Item {
	list := make([]Item, 0, len(turn.Members))
	for _, at := range turn.Members {
		list = append(list, items[at])
	}
	slices.SortFunc(list, func(a, b Item) int {
		return 2000*int(a.SM-b.SM) + int(a.Quota-b.Quota)
	})
	return list
}

// Invariant: a share that leaves, or asks for less, never makes the others unfit (docs/packing.md, fact 6).
func TestLessNeverHurts(t *testing.T) {
	solver := NewSolver()
	forCrowds(t, 200, func(t *testing.T, items []Item, seed uint64) {
		r := seeded(seed + 1000)
		for _, reserve := range reserves {
			if !solver.Fits(items, reserve) {
				continue
			}
			at := r.IntN(len(items))
			without := slices.Delete(slices.Clone(items), at, at+1)
			less := slices.Clone(items)
			less[at].SM, less[at].Quota = 1+r32(r.IntN, less[at].SM), 1+r32(r.IntN, less[at].Quota)
			if !solver.Fits(without, reserve) || !solver.Fits(less, reserve) {
				t.Fatalf("%v fits at %d, but not without or with less for item %d (%v)", items, reserve, at, less[at])
			}
		}
	})
}

func r32(intN func(int) int, below share.PerMille) share.PerMille {
	return share.PerMille(intN(int(below)))
}

// Invariant: a set that fits with a reserve fits with a smaller one.
func TestSmallerReserveNeverHurts(t *testing.T) {
	solver := NewSolver()
	forCrowds(t, 100, func(t *testing.T, items []Item, _ uint64) {
		fit := solver.Fits(items, 0)
		for reserve := share.PerMille(10); reserve <= 200; reserve += 10 {
			now := solver.Fits(items, reserve)
			if now && !fit {
				t.Fatalf("%v fits at reserve %d but not at %d", items, reserve, reserve-10)
			}
			fit = now
		}
	})
}

// The length decides: a set fits exactly if it leaves the reserve free.
func TestFitsFollowsLength(t *testing.T) {
	solver := NewSolver()
	forCrowds(t, 200, func(t *testing.T, items []Item, _ uint64) {
		length, ok := Length(items)
		all, _, _ := sumSMs(items)
		for _, reserve := range reserves {
			want := all <= 1000 || ok && length <= 1-float64(reserve)/1000+1e-9
			if got := solver.Fits(items, reserve); got != want {
				t.Fatalf("Fits(%v, %d) = %v, length %v", items, reserve, got, length)
			}
		}
	})
}

// Sets cut out of a schedule that uses every SM at every moment fit with nothing to spare. They are the hardest to
// accept: their area is exactly what there is, and the program is degenerate.
func TestSetsCutFromFullSchedulesFit(t *testing.T) {
	for _, n := range []int{6, 10, 16, 24, 40, 64} {
		for seed := range uint64(20) {
			for _, reserve := range reserves {
				items := cutSchedule(seed, n, int(reserve), pick(seeded(seed), 50, 20, 10))
				g := new(program)
				if v := g.normalize(items, reserve); v != fits && (v == exceeds || g.decide() != fits) {
					t.Fatalf("%v at %d was cut from a schedule, but does not fit", items, reserve)
				}
			}
		}
	}
}

// cutSchedule draws SM sizes, then turns in which some of them add up to the whole slice.
func cutSchedule(seed uint64, n, reserve, grain int) []Item {
	r := seeded(seed)
	items := make([]Item, n)
	for k := range items {
		items[k].SM = share.PerMille(grain * between(r, 1, 300/grain))
	}
	for left := 1000 - reserve; left > 0; {
		d := min(left, between(r, 1, 200))
		if wholeTurn(items, r.Perm(n), share.PerMille(d)) {
			left -= d
		} else if r.IntN(50) == 0 { // these sizes may never add up
			return nil
		}
	}
	return slices.DeleteFunc(items, func(i Item) bool { return i.Quota == 0 })
}

// wholeTurn assigns d to the first items that fit together, if they use every SM.
func wholeTurn(items []Item, order []int, d share.PerMille) bool {
	room, members := share.Whole, []int(nil)
	for _, k := range order {
		if items[k].SM <= room {
			room, members = room-items[k].SM, append(members, k)
		}
	}
	for _, k := range members {
		if room == 0 {
			items[k].Quota += d
		}
	}
	return room == 0
}

// The program must always end with a proof; otherwise Fits would refuse without a reason.
func TestProgramNeverEndsUndecided(t *testing.T) {
	forCrowds(t, 200, func(t *testing.T, items []Item, _ uint64) {
		for _, reserve := range reserves {
			g := new(program)
			if g.normalize(items, reserve) == unknown && g.decide() == unknown {
				t.Fatalf("no verdict on %v at %d", items, reserve)
			}
		}
	})
}

// Every result of quickTest must be that of the program.
func TestQuickTestsAgreeWithProgram(t *testing.T) {
	forCrowds(t, 200, func(t *testing.T, items []Item, _ uint64) {
		g := new(program)
		if g.normalize(items, 50) != unknown {
			return
		}
		if v := g.quickTest(); v != unknown && v != g.decide() {
			t.Fatalf("a quick test says %d about %v, the program disagrees", v, items)
		}
	})
}
