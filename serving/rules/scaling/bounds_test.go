package scaling

import (
	"math"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/bounds"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestFieldBounds checks that policies, objectives, configurations and states are valid up to their bounds.
func TestFieldBounds(t *testing.T) {
	const most, second = math.MaxInt64, int64(time.Second)
	policy := func() Policy { return Policy{}.withDefaults() }
	long := func(set func(*Policy, int64)) func(*Policy, int64) { // a window of 10 samples
		return func(p *Policy, n int64) {
			p.Window, p.Period, p.Out, p.In = 10*time.Second, time.Second, 1, 1
			set(p, n)
		}
	}
	bounds.Check(t, policy, func(p *Policy) error { return p.validate() },
		bounds.Of("window", math.MinInt64, 3601*second-1, func(p *Policy, n int64) {
			p.Period, p.Window, p.Out, p.In = time.Second, time.Duration(max(n, 2*second)), 1, 1
		}),
		bounds.Of("out", 1, 10, long(func(p *Policy, n int64) { p.Out = int(n) })),
		bounds.Of("in", 1, 9, long(func(p *Policy, n int64) { p.In = int(n) })),
		bounds.Of("max", 1, 10_000, func(p *Policy, n int64) { p.Min, p.Max = 0, int(n) }),
		bounds.Of("max", 3, 10_000, func(p *Policy, n int64) { p.Min, p.Max = 3, int(n) }),
		bounds.Of("min", 0, most, func(p *Policy, n int64) { p.Min = min(int(n), p.Max) }),
		bounds.Of("sharedFor", 1, most, func(p *Policy, n int64) { p.SharedFor = time.Duration(n) }),
		bounds.Of("warmFor", 1, most, func(p *Policy, n int64) { p.WarmFor = time.Duration(n) }),
	)
	bounds.Check(t, func() SLO { return SLO{Latency: time.Second} }, func(s *SLO) error { return s.validate() },
		bounds.Of("latency", 1, most, func(s *SLO, n int64) { s.Latency = time.Duration(n) }),
		bounds.Of("headroom", 0, 999, func(s *SLO, n int64) { s.Headroom = share.PerMille(n) }),
	)
	bounds.Check(t, func() Configuration { return size }, func(c *Configuration) error { return c.validate() },
		bounds.Of("sm", 1, 1000, func(c *Configuration, n int64) { c.Share.SMRequest = share.PerMille(n) }),
		bounds.Of("quota", 1, 1000, func(c *Configuration, n int64) { c.Share.QuotaRequest = share.PerMille(n) }),
	)
	bounds.Check(t, func() Configuration { return size }, func(c *Configuration) error { return c.validate() },
		bounds.Of("throughput", math.SmallestNonzeroFloat64, 1e12, func(c *Configuration, x float64) { c.Throughput = Rate(x) }))
	state := func() State {
		return State{LastID: 9, Instances: []Instance{{ID: 3, Configuration: size, Residency: Hot}, {ID: 7, Configuration: size, Residency: Warm}},
			Samples: []Sample{{At: 1, Load: 1}, {At: 5, Load: 1}}}
	}
	const now = 10
	valid := func(s *State) error { return s.validate(now) }
	bounds.Check(t, state, valid,
		bounds.Of("instances", 1, 6, func(s *State, n int64) { s.Instances[0].ID = ID(n) }),
		bounds.Of("instances", 4, 9, func(s *State, n int64) { s.Instances[1].ID = ID(n) }),
		bounds.Of("residency", int64(Hot), int64(Warm), func(s *State, n int64) { s.Instances[0].Residency = Residency(n) }),
		bounds.Of("since", math.MinInt64, now, func(s *State, n int64) { s.Instances[0].Since = time.Duration(n) }),
		bounds.Of("samples", 1, now, func(s *State, n int64) { s.Samples[1].At = time.Duration(n) }),
	)
	bounds.Check(t, state, valid, bounds.Of("load", 0, 1e12, func(s *State, x float64) { s.Samples[0].Load = Rate(x) }))
}
