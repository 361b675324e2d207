package profile

import (
	"math"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/bounds"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestBounds checks that models and measurements are valid up to their bounds.
func TestBounds(t *testing.T) {
	cpu := CPU{Mean: []Exponential{{1, 1, 1}}, P99: []Exponential{{1, 1, 1}}}
	bounds.Check(t, valid, (*Model).Validate,
		bounds.Of("gpu.cardGB", 1, 512, func(m *Model, n int64) { m.GPU.CardGB = int(n) }),
		bounds.Of("gpu.maxBatch", 1, 1024, func(m *Model, n int64) { m.GPU.MaxBatch = int(n) }),
		bounds.Of("share.maxBatch", 1, 1024, func(m *Model, n int64) { m.Share.MaxBatch = int(n) }),
		bounds.Of("share.curves", 1, 100, func(m *Model, n int64) { m.Share.Curves = repeated(m.Share.Curves[0], n) }),
		bounds.Of("share.curves[0].sm", 1, 1000, func(m *Model, n int64) { m.Share.Curves[0].SM = share.PerMille(n) }),
		bounds.Of("partitioned.stages", 1, 16, func(m *Model, n int64) { m.Partitioned.Stages = repeated(m.Partitioned.Stages[0], n) }),
		bounds.Of("partitioned.stages[0].workers", 1, 16, func(m *Model, n int64) { m.Partitioned.Stages[0].Workers = repeated(cpu, n) }),
		bounds.Of("partitioned.master.milliCPU", 1, 1_000_000, func(m *Model, n int64) { m.Partitioned.Master.CPU = MilliCPU(n) }),
		bounds.Of("partitioned.master.memoryMiB", 1, 1<<20, func(m *Model, n int64) { m.Partitioned.Master.MemoryMiB = int(n) }),
	)
	bounds.Check(t, valid, (*Model).Validate,
		bounds.Of("cpu.mean[0].alpha", 0, 1e9, func(m *Model, x float64) { m.CPU.Mean[0].Alpha = Seconds(x) }),
		bounds.Of("cpu.mean[0].beta", 1e-6, 1e9, func(m *Model, x float64) { m.CPU.Mean[0].Beta = x }),
		bounds.Of("cpu.p99[0].gamma", 1e-9, 1e9, func(m *Model, x float64) { m.CPU.P99[0].Gamma = Seconds(x) }),
		bounds.Of("cpu.memoryMiB.intercept", 0, 1e9, func(m *Model, x float64) { m.CPU.Memory.Intercept = x }),
		bounds.Of("gpu.timeSlice", 1e-9, 1e9, func(m *Model, x float64) { m.GPU.TimeSlice = Seconds(x) }),
		bounds.Of("gpu.memoryMiB.slope", 0, 1e9, func(m *Model, x float64) { m.GPU.Memory.Slope = x }),
		bounds.Of("gpu.hostMemoryMiB.slope", 0, 1e9, func(m *Model, x float64) { m.GPU.HostMemory.Slope = x }),
		bounds.Of("partitioned.transfer.slope", 0, 1e9, func(m *Model, x float64) { m.Partitioned.Transfer.Slope = x }),
		bounds.Of("share.window", 1e-9, 1e9, func(m *Model, x float64) { m.Share.Window = Seconds(x) }),
		bounds.Of("share.tail.slope", 0, 1e9, func(m *Model, x float64) { m.Share.Tail.Slope = x }),
		bounds.Of("share.memoryMiB.slope", 0, 1e9, func(m *Model, x float64) { m.Share.Memory.Slope = x }),
	)
	for _, unlisted := range []func(*Model){
		func(m *Model) { m.Share.Curves[0].Exclusive = Linear{} }, func(m *Model) { m.GPU.Exclusive = Linear{Slope: 1e-10} },
	} {
		m := valid()
		if unlisted(&m); m.Validate() == nil {
			t.Error("a model without time for a batch is valid")
		}
	}
	m := valid()
	if m.GPU.Exclusive = (Linear{Slope: 1e-9}); m.Validate() != nil {
		t.Error(m.Validate())
	}
}

func repeated[T any](one T, n int64) []T {
	var all []T
	for range n {
		all = append(all, one)
	}
	return all
}

func TestPointBounds(t *testing.T) {
	good := func() Point {
		return Point{Model: "m", Resource: Resource{SM: 1000, Quota: 1000}, Batch: 1, Mean: time.Millisecond}
	}
	validate := func(p *Point) error { return p.Validate() }
	bounds.Check(t, good, validate,
		bounds.Of("resource.sm, quota", 1, 1000, func(p *Point, n int64) { p.Resource.SM = share.PerMille(n) }),
		bounds.Of("resource.sm, quota", 1, 1000, func(p *Point, n int64) { p.Resource.Quota = share.PerMille(n) }),
		bounds.Of("batch", 1, 65536, func(p *Point, n int64) { p.Batch = int(n) }),
		bounds.Of("stage", 0, math.MaxInt, func(p *Point, n int64) { p.Stage = int(n) }),
		bounds.Of("mean", 1, math.MaxInt64, func(p *Point, n int64) { p.Mean = time.Duration(n) }),
		bounds.Of("p95, p99, load", 0, math.MaxInt64, func(p *Point, n int64) { p.P95 = time.Duration(n) }),
		bounds.Of("p95, p99, load", 0, math.MaxInt64, func(p *Point, n int64) { p.P99 = time.Duration(n) }),
		bounds.Of("p95, p99, load", 0, math.MaxInt64, func(p *Point, n int64) { p.LoadWarm = time.Duration(n) }),
		bounds.Of("p95, p99, load", 0, math.MaxInt64, func(p *Point, n int64) { p.LoadCold = time.Duration(n) }),
		bounds.Of("memory", 0, 1<<50, func(p *Point, n int64) { p.Memory = share.Bytes(n) }),
		bounds.Of("utilisation", 0, 1000, func(p *Point, n int64) { p.Utilisation = share.PerMille(n) }),
		bounds.Of("occupancy", 0, 1000, func(p *Point, n int64) { p.Occupancy = share.PerMille(n) }),
	)
	bounds.Check(t, good, validate, bounds.Of("throughput", 0, math.Nextafter(1e9, 0), func(p *Point, x float64) { p.Throughput = x }))
}
