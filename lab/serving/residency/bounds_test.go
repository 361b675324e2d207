package residency

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/bounds"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// TestBounds checks that policies and functions are valid up to their bounds.
func TestBounds(t *testing.T) {
	const hour, memory = int64(time.Hour), int64(share.MaxMemory)
	bounds.Check(t, func() Policy { return Policy{}.withDefaults() }, func(p *Policy) error { return p.validate() },
		bounds.Of("up, down", 301, 1000, func(p *Policy, n int64) { p.Up = share.PerMille(n) }),
		bounds.Of("up, down", 1, 599, func(p *Policy, n int64) { p.Down = share.PerMille(n) }),
		bounds.Of("window", int64(time.Millisecond), hour, func(p *Policy, n int64) { p.Window = time.Duration(n) }),
		bounds.Of("stay", 1, hour, func(p *Policy, n int64) { p.Stay = time.Duration(n) }),
		bounds.Of("coldAfter", 1, 365*24*hour, func(p *Policy, n int64) { p.ColdAfter = time.Duration(n) }),
		bounds.Of("host", 0, memory, func(p *Policy, n int64) { p.Host = share.Bytes(n) }),
		bounds.Of("misses", 1, 1000, func(p *Policy, n int64) { p.Misses = share.PerMille(n) }),
	)
	bounds.Check(t, func() Function { return testFunction("a", "t", 5, 50*ms) }, (*Function).validate,
		bounds.Of("memory", 1, memory, func(f *Function, n int64) { f.Memory = share.Bytes(n) }),
		bounds.Of("loadWarm", 0, hour, func(f *Function, n int64) { f.LoadWarm, f.LoadCold = time.Duration(n), time.Hour }),
		bounds.Of("loadCold", 5, hour, func(f *Function, n int64) { f.LoadWarm, f.LoadCold = 5, time.Duration(n) }),
		bounds.Of("times", 1, hour, func(f *Function, n int64) { f.Times["1g.10gb"] = time.Duration(n) }),
	)
}
