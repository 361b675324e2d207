// Package routing says which request goes first and to which instance of its function, as FluidFaaS's load balancer does:
// the least slack first, to hot instances as long as they have capacity, and what remains to the one that shares a slice.
package routing

import (
	"cmp"
	"slices"
	"time"
)

// Request waits for an instance. Execution and Load are estimates for where it would run now, so they are filled in when
// it is to be dispatched, not when it arrives: a load falls away once the function is resident (U13).
type Request struct {
	ID        uint64
	Deadline  time.Duration // from the caller's fixed time
	Execution time.Duration
	Load      time.Duration // of the function's data, 0 where they are resident
}

// LatestStart is when the request must start to meet its deadline: the deadline less execution and load. The slack is
// what remains until then, so the order of latest starts is that of slack (FF-48, FF-60).
func (r Request) LatestStart() time.Duration { return r.Deadline - r.Execution - r.Load }

// Compare orders by slack at now, and requests of equal slack by ID. Those that cannot meet their deadline any more stand
// behind all that can: they would have the least slack, and make others late for nothing (U14). Among them the one due
// first goes first, but a load is paid only for one that is due earlier by as long as it takes: else two functions with a
// backlog would load in turn for every request.
func Compare(now time.Duration, a, b Request) int {
	hopelessA, hopelessB := a.LatestStart() < now, b.LatestStart() < now
	switch {
	case hopelessA && hopelessB:
		return cmp.Or(cmp.Compare(a.Deadline+a.Load, b.Deadline+b.Load), cmp.Compare(a.ID, b.ID))
	case hopelessA:
		return 1
	case hopelessB:
		return -1
	}
	return cmp.Or(cmp.Compare(a.LatestStart(), b.LatestStart()), cmp.Compare(a.ID, b.ID))
}

// Order sorts requests by Compare.
func Order(now time.Duration, requests []Request) {
	slices.SortFunc(requests, func(a, b Request) int { return Compare(now, a, b) })
}
