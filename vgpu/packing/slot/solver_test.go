package slot

import (
	"slices"
	"sync"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func copies(n int, i Item) []Item { return slices.Repeat([]Item{i}, n) }

func TestFits(t *testing.T) {
	three := copies(3, percent(50, 60))
	cases := map[string]struct {
		items   []Item
		reserve share.PerMille
		want    bool
	}{
		"nothing":                         {nil, 50, true},
		"a whole slice":                   {[]Item{percent(100, 100)}, 50, true},
		"three halves of 60 %":            {three, 0, true},
		"three halves of 60 %, reserve":   {three, 50, true},
		"three halves of 60 %, too much":  {three, 101, false},
		"five halves of 40 %":             {copies(5, percent(50, 40)), 0, true},
		"five halves of 40 %, reserve":    {copies(5, percent(50, 40)), 1, false},
		"three of 60 % SM exclude":        {copies(3, percent(60, 40)), 0, false},
		"eight shares in five turns":      {eight(), 0, true},
		"0.97 of a window, no reserve":    {[]Item{percent(60, 50), percent(60, 47)}, 0, true},
		"0.97 of a window, reserve 5 %":   {[]Item{percent(60, 50), percent(60, 47)}, 50, false},
		"0.97 of a window, reserve 3 %":   {[]Item{percent(60, 50), percent(60, 47)}, 30, true},
		"full quota leaves half":          {[]Item{percent(50, 100), percent(50, 50), percent(50, 50)}, 0, true},
		"full quota leaves too little":    {[]Item{percent(51, 100), percent(50, 50)}, 0, false},
		"full quota pays no reserve":      {[]Item{percent(50, 100), percent(50, 50), percent(50, 45)}, 50, true},
		"only full quota":                 {copies(2, percent(50, 100)), 50, true},
		"only full quota, too many SMs":   {copies(3, percent(50, 100)), 50, false},
		"one configuration, no reserve":   {copies(2, percent(50, 99)), 1000, true},
		"two configurations, all reserve": {copies(3, percent(50, 1)), 1000, false},
		"quota above what turns leave":    {[]Item{percent(60, 96), percent(60, 1)}, 50, false},
		"negative reserve counts as none": {copies(5, percent(50, 40)), -50, true},
		"no SMs":                          {[]Item{{0, 500}}, 0, false},
		"no quota":                        {[]Item{{500, 0}}, 0, false},
		"too many SMs":                    {[]Item{{1001, 500}}, 0, false},
		"too much quota":                  {[]Item{{500, 1001}}, 0, false},
		"negative":                        {[]Item{{500, 500}, {-500, 500}}, 0, false},
		"a hundred at once":               {copies(100, percent(1, 50)), 50, true},
		"64 in turns":                     {copies(64, percent(2, 70)), 50, true},
		"65 in turns":                     {copies(65, percent(2, 10)), 50, false},
	}
	solver := NewSolver()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if got := solver.Fits(c.items, c.reserve); got != c.want {
				t.Errorf("Fits(%v, %d) = %v, want %v", c.items, c.reserve, got, c.want)
			}
		})
	}
}

// eight returns a set of the paper's shares that needs the linear program and the whole window.
func eight() []Item {
	return slices.Concat(copies(4, percent(12, 40)), copies(2, percent(24, 40)), copies(2, percent(50, 60)))
}

func TestQuickTestsDoNotAllocate(t *testing.T) {
	solver := NewSolver()
	for name, items := range quickCases() {
		if n := testing.AllocsPerRun(100, func() { solver.Fits(items, 50) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// quickCases are settled without the linear program, each by the test that it is named after.
func quickCases() map[string][]Item {
	return map[string][]Item{
		"together": {percent(30, 50), percent(30, 60), percent(30, 70), percent(10, 80)},
		"lanes":    {percent(40, 30), percent(40, 30), percent(40, 30), percent(10, 80)},
		"area":     {percent(40, 60), percent(40, 60), percent(40, 60), percent(60, 60)},
		"pairs":    {percent(60, 40), percent(60, 40), percent(60, 40)},
	}
}

func TestMemoIsBounded(t *testing.T) {
	var m memo
	for k := range 5 * maxGeneration {
		m.set([]byte{byte(k), byte(k >> 8), byte(k >> 16)}, true)
		if n := len(m.young) + len(m.old); n > 2*maxGeneration {
			t.Fatalf("%d verdicts remembered", n)
		}
		if _, known := m.get([]byte{0, 0, 0}); !known {
			t.Fatalf("a verdict in use was forgotten after %d others", k)
		}
	}
	if _, known := m.get([]byte{1, 0, 0}); known {
		t.Error("a verdict out of use is still there")
	}
}

// Many goroutines ask one solver; each must hear what a fresh solver says.
func TestSolverIsSafeForConcurrentUse(t *testing.T) {
	sets, want := mixedSets(60)
	solver := NewSolver()
	var wait sync.WaitGroup
	for worker := range uint64(8) {
		wait.Go(func() {
			for _, k := range seeded(worker).Perm(len(sets)) {
				if got := solver.Fits(sets[k], 50); got != want[k] {
					t.Errorf("Fits(%v) = %v among others, %v alone", sets[k], got, want[k])
				}
			}
		})
	}
	wait.Wait()
}

func mixedSets(each int) (sets [][]Item, want []bool) {
	for _, name := range familyNames() {
		r := seeded(7)
		for range each {
			items := crowd(families[name], r, 0.85)
			sets, want = append(sets, items), append(want, new(Solver).Fits(items, 50))
		}
	}
	return sets, want
}
