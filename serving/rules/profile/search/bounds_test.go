package search

import (
	"math"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/test/bounds"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestBounds checks that the parameters of each strategy are valid up to their bounds.
func TestBounds(t *testing.T) {
	bounds.Check(t, func() Growth { return Growth{SLO: time.Second, Step: 100, MaxBatch: 8} }, func(g *Growth) error { return g.validate() },
		bounds.Of("slo", 2, math.MaxInt64, func(g *Growth, n int64) { g.SLO = time.Duration(n) }),
		bounds.Of("step", 1, 1000, func(g *Growth, n int64) { g.Step = share.PerMille(n) }),
		bounds.Of("batch", 1, profile.MaxBatch, func(g *Growth, n int64) { g.MaxBatch = int(n) }),
	)
	bounds.Check(t, func() Bisection { return Bisection{Step: 100, Batch: 8} }, func(b *Bisection) error { return b.validate() },
		bounds.Of("step", 1, 1000, func(b *Bisection, n int64) { b.Step = share.PerMille(n) }),
		bounds.Of("batch", 1, profile.MaxBatch, func(b *Bisection, n int64) { b.Batch = int(n) }),
	)
	bounds.Check(t, func() Grid { return Grid{SM: []share.PerMille{1}, Quota: []share.PerMille{1}, Batches: []int{1}} }, func(g *Grid) error { return g.validate() },
		bounds.Of("sm", 1, 1000, func(g *Grid, n int64) { g.SM[0] = share.PerMille(n) }),
		bounds.Of("quota", 1, 1000, func(g *Grid, n int64) { g.Quota[0] = share.PerMille(n) }),
		bounds.Of("batch", 1, profile.MaxBatch, func(g *Grid, n int64) { g.Batches[0] = int(n) }),
	)
	good := func() Sweep { return Sweep{From: 100, To: 100, Batches: []int{1}, Most: 4} }
	bounds.Check(t, good, func(s *Sweep) error { return s.validate() },
		bounds.Of("from, to", 1, 100, func(s *Sweep, n int64) { s.From = profile.MilliCPU(n) }),
		bounds.Of("from, to", 100, 1_000_000, func(s *Sweep, n int64) { s.To = profile.MilliCPU(n) }),
		bounds.Of("stages", 0, maxStages, func(s *Sweep, n int64) { s.Stages = int(n) }),
		bounds.Of("most", 4, 1000, func(s *Sweep, n int64) { s.Most = int(n) }),
		bounds.Of("batch", 1, profile.MaxBatch, func(s *Sweep, n int64) { s.Batches[0] = int(n) }),
	)
	bounds.Check(t, good, func(s *Sweep) error { return s.validate() },
		bounds.Of("error", 0, math.Nextafter(1, 0), func(s *Sweep, x float64) { s.Error = profile.MAPE(x) }))
}
