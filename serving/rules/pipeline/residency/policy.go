// Package residency decides which functions are resident on the shared slices of a node, and which request runs there next.
// It implements FluidFaaS's eviction-based time sharing, with the corrections that docs/glossary.md lists.
//
// An instance is Hot (it has slices of its own and is never evicted), Shared (on a slice that functions use in turn), Warm
// (in host memory after an eviction) or Cold. A Node manages Shared and Warm instances. For Hot ones it only decides the
// promotion; Policy.Next decides their demotion.
package residency

import (
	"cmp"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Policy holds the thresholds for promoting, demoting and deleting instances, and for adding and removing slices. Fields that are zero
// take the defaults in the comments.
type Policy struct {
	Up        share.PerMille // utilisation above which a shared instance is promoted; 600 (U10)
	Down      share.PerMille // utilisation below which a hot instance is demoted; 300
	Window    time.Duration  // over which utilisation is averaged; 30 s
	Stay      time.Duration  // minimum time that an instance is hot or shared; 30 s
	ColdAfter time.Duration  // time without a request after which an instance is deleted; 10 min

	Host share.Bytes // limit of host memory for evicted data; 0 (U12)
	// Misses is the fraction of late requests in the window, in per mille, above which the node needs another slice; default 10.
	Misses share.PerMille
	Turn   Turn // limits of a turn while another function waits
	// Refuse rejects requests that can no longer meet their deadline, instead of running them after all others (U14).
	Refuse bool
}

// maxTurn is the largest valid number of requests of a turn while others wait.
const maxTurn = 1_000_000

func (p Policy) withDefaults() Policy {
	p.Up, p.Down = cmp.Or(p.Up, 600), cmp.Or(p.Down, 300)
	p.Window, p.Stay = cmp.Or(p.Window, 30*time.Second), cmp.Or(p.Stay, 30*time.Second)
	p.ColdAfter, p.Misses = cmp.Or(p.ColdAfter, 10*time.Minute), cmp.Or(p.Misses, 10)
	p.Turn.Requests, p.Turn.For = cmp.Or(p.Turn.Requests, 64), cmp.Or(p.Turn.For, time.Second)
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
	case p.Turn.Requests < 1 || p.Turn.Requests > maxTurn:
		return share.Invalid("turn.requests", "%d is outside 1 to %d", p.Turn.Requests, maxTurn)
	case p.Turn.For < time.Millisecond || p.Turn.For > maxTime:
		return share.Invalid("turn.for", "%v is outside 1 ms to %v", p.Turn.For, maxTime)
	}
	return nil
}

// InstanceState is the state of an instance on which its promotion, demotion or deletion depends.
type InstanceState struct {
	Residency   scaling.Residency
	Since       time.Duration  // when it began
	LastRequest time.Duration  // when it last got a request
	Utilisation share.PerMille // over the window
	Busy        bool           // has requests, so it is not idle
}

// Next returns the residency that an instance should have, given its present state (FluidFaaS, fig. 8; the numbers in the body are those
// of its arrows). A new instance is Shared. Next does not return Warm for a Shared instance: it is evicted when another function needs
// the memory.
func (p Policy) Next(now time.Duration, s InstanceState) scaling.Residency {
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
