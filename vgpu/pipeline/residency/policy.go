// Package residency decides which functions lie on the slices of a node that are shared in turn, and which request runs
// there next: FluidFaaS's eviction-based time sharing, with the corrections that docs/glossary.md lists.
//
// An instance is Hot (has slices of its own and is never evicted), Shared (on a slice that others use in turn), Warm (in
// host memory after eviction) or Cold. A Node holds what is Shared and Warm; hot instances have nothing to wait for, and
// only their way up and down is decided here.
package residency

import (
	"cmp"
	"time"

	"github.com/gshare-dev/gshare/vgpu/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Policy says when an instance changes its residency. Zero fields take the defaults.
type Policy struct {
	Up        share.PerMille // a shared instance that is used more is promoted; 600 (U10)
	Down      share.PerMille // a hot instance that is used less is demoted; 300 (FF-41)
	Window    time.Duration  // over which use is averaged; 30 s
	Stay      time.Duration  // that an instance is at least hot, or shared, before that changes; 30 s
	ColdAfter time.Duration  // without a request; 10 min (FF-43)

	Host share.Bytes // of host memory for evicted data; nothing is kept beyond (U12)
	// Misses is the part of requests over the window that may be late before the node asks for another slice; 10 (FF-49).
	Misses share.PerMille
	// Refuse answers requests that cannot meet their deadline any more at once, instead of behind all others (U14).
	Refuse bool
}

func (p Policy) withDefaults() Policy {
	p.Up, p.Down = cmp.Or(p.Up, 600), cmp.Or(p.Down, 300)
	p.Window, p.Stay = cmp.Or(p.Window, 30*time.Second), cmp.Or(p.Stay, 30*time.Second)
	p.ColdAfter, p.Misses = cmp.Or(p.ColdAfter, 10*time.Minute), cmp.Or(p.Misses, 10)
	return p
}

func (p Policy) validate() error {
	switch {
	case p.Down < 1 || p.Up <= p.Down || p.Up > share.Whole:
		return share.Invalid("up, down", "%d and %d per mille: want up above down, both in 1 to %d", p.Up, p.Down, share.Whole)
	case p.Window < time.Millisecond || p.Window > maxTime:
		return share.Invalid("window", "%v is outside 1 ms to %v", p.Window, maxTime)
	case p.Stay < 1 || p.Stay > maxTime:
		return share.Invalid("stay", "%v is not above 0 and at most %v", p.Stay, maxTime)
	case p.ColdAfter < 1 || p.ColdAfter > 365*24*time.Hour:
		return share.Invalid("coldAfter", "%v is not above 0 and at most a year", p.ColdAfter)
	case p.Host < 0 || p.Host > share.MaxMemory:
		return share.Invalid("host", "%d is outside 0 to %d bytes", p.Host, share.MaxMemory)
	case p.Misses < 1 || p.Misses > share.Whole:
		return share.Invalid("misses", "%d per mille is outside 1 to %d", p.Misses, share.Whole)
	}
	return nil
}

// Standing is what a change of residency depends on.
type Standing struct {
	Residency   scaling.Residency
	Since       time.Duration  // when it took the residency
	LastRequest time.Duration  // that it was given
	Utilisation share.PerMille // of the window
	Busy        bool           // it has requests: then it is not idle, however long they take
}

// Next is the residency that an instance should have (FF-44, fig. 8). A new instance begins as Shared (1); that it is
// Warm (4) is decided by who needs its place, not here.
func (p Policy) Next(now time.Duration, s Standing) scaling.Residency {
	p = p.withDefaults()
	stayed := now-s.Since >= p.Stay
	switch {
	case s.Residency == scaling.Shared && stayed && s.Utilisation > p.Up:
		return scaling.Hot // 2
	case s.Residency == scaling.Hot && stayed && s.Utilisation < p.Down:
		return scaling.Shared // 3
	case s.Residency != scaling.Hot && !s.Busy && now-s.LastRequest >= p.ColdAfter:
		return scaling.Cold // 5
	}
	return s.Residency
}
