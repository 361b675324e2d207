package slot

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// BenchmarkFits measures an admission test as it occurs: 1,000 shares are placed online, and every slice with enough
// area left is asked. "cold" starts with an empty memory for each fleet, "warm" goes on with other shares of the family.
// The target is 15 µs a test (1.6 to 12 µs were measured first).
func BenchmarkFits(b *testing.B) {
	for _, name := range []string{"papermix", "uniform", "smallgrid", "overhalf", "permille"} {
		b.Run(name+"/cold", func(b *testing.B) { benchmarkFleet(b, families[name], func(f *fleet) { f.fits = NewSolver().Fits }) })
		b.Run(name+"/warm", func(b *testing.B) { benchmarkFleet(b, families[name], func(*fleet) {}) })
	}
}

func benchmarkFleet(b *testing.B, draws family, before func(*fleet)) {
	f := fleet{fits: NewSolver().Fits}
	tests, seed := 0, uint64(0)
	for b.Loop() {
		b.StopTimer()
		seed++
		items := draw(draws, seeded(seed), 1000)
		before(&f)
		b.StartTimer()
		f.fill(items, 50)
		tests += f.tests
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(tests), "ns/test")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/share")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSolve measures a slot table for slices that the linear program had to admit.
func BenchmarkSolve(b *testing.B) {
	for _, name := range []string{"papermix", "uniform", "overhalf"} {
		sets := fullSlices(families[name])
		b.Run(name, func(b *testing.B) {
			for k := 0; b.Loop(); k++ {
				Solve(sets[k%len(sets)], 100*time.Millisecond, 50)
			}
		})
	}
}

// fullSlices returns the slices of a filled fleet.
func fullSlices(draws family) [][]Item {
	f := fleet{fits: NewSolver().Fits}
	f.fill(draw(draws, seeded(1), 1000), 50)
	sets := make([][]Item, len(f.slices))
	for k, s := range f.slices {
		sets[k] = s.items
	}
	return sets
}

var sink bool

// BenchmarkQuick measures the tests that need no linear program.
func BenchmarkQuick(b *testing.B) {
	solver := NewSolver()
	for name, items := range quickCases() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sink = solver.Fits(items, share.PerMille(50))
			}
		})
	}
}
