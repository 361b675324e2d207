package pipeline

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/bounds"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestBounds checks that functions, kinds of slices and demands are valid up to their bounds.
func TestBounds(t *testing.T) {
	const hour, day, memory = int64(time.Hour), int64(24 * time.Hour), int64(share.MaxMemory)
	bounds.Check(t, func() Function { return chain(9, 9) }, (*Function).Validate,
		bounds.Of("nodes", 1, 12, func(f *Function, n int64) { *f = chain(slices.Repeat([]int{9}, int(n))...) }),
		bounds.Of("transfer", 0, hour, func(f *Function, n int64) { f.Transfer = time.Duration(n) }),
		bounds.Of("nodes[0].memory", 1, memory, func(f *Function, n int64) { f.Nodes[0].Memory = share.Bytes(n) }),
		bounds.Of("nodes[0].chance", 0, 1000, func(f *Function, n int64) { f.Nodes[0].Chance = share.PerMille(n) }),
		bounds.Of("nodes[1].times", 1, hour, func(f *Function, n int64) { f.Nodes[1].Times[small.Name] = time.Duration(n) }),
	)
	bounds.Check(t, func() Kind { return small }, func(k *Kind) error { return k.validate("kind") },
		bounds.Of("kind.compute", 1, 64, func(k *Kind, n int64) { k.Compute = int(n) }),
		bounds.Of("kind.memory", 1, memory, func(k *Kind, n int64) { k.Memory = share.Bytes(n) }),
	)
	demand := func() Demand { return Demand{SLO: time.Second} }
	bounds.Check(t, demand, func(d *Demand) error { return d.validate() },
		bounds.Of("slo", 1, day, func(d *Demand, n int64) { d.SLO = time.Duration(n) }),
		bounds.Of("queue", 0, day, func(d *Demand, n int64) { d.Queue = time.Duration(n) }),
		bounds.Of("candidates", 0, math.MaxInt64, func(d *Demand, n int64) { d.Candidates = int(n) }),
	)
	bounds.Check(t, demand, func(d *Demand) error { return d.validate() },
		bounds.Of("rate", 0, 1e6, func(d *Demand, x float64) { d.Rate = x }))
}
