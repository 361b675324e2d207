// Package residency decides which functions are resident on the shared slices of a node, and which request runs there next.
// It implements FluidFaaS's eviction-based time sharing, with the corrections that docs/glossary.md lists.
//
// An instance is Hot (it has slices of its own and is never evicted), Shared (on a slice that functions use in turn), Warm
// (in host memory after an eviction) or Cold. A Node manages Shared and Warm instances. For Hot ones it only decides the
// promotion; pool.Thresholds.Next decides their demotion. What ships has package vgpu/residency instead, and keeps the state of turns in pods.
package residency

import (
	"cmp"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/scaling/pool"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Policy holds the thresholds for promoting, demoting and deleting instances, and for adding and removing slices. Fields that are zero
// take the defaults in the comments.
type Policy struct {
	pool.Thresholds

	Window time.Duration // over which utilisation is averaged; 30 s
	Host   share.Bytes   // limit of host memory for evicted data; 0 (U12)
	// Misses is the fraction of late requests in the window, in per mille, above which the node needs another slice; default 10.
	Misses share.PerMille
	// Refuse rejects requests that can no longer meet their deadline, instead of running them after all others (U14).
	Refuse bool
}

func (p Policy) withDefaults() Policy {
	p.Thresholds = p.Thresholds.WithDefaults()
	p.Window, p.Misses = cmp.Or(p.Window, 30*time.Second), cmp.Or(p.Misses, 10)
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
