// Package routing orders requests and selects an instance for each, as FluidFaaS's load balancer does: least slack first, to hot
// instances while they have capacity, then to the instance that shares a slice.
package routing

import (
	"cmp"
	"slices"
	"time"
)

// Request is a request that waits for an instance. Its Execution and Load times are estimated when it is dispatched, not when it arrives,
// since they depend on the slice: nothing has to be loaded once the function is resident there.
type Request struct {
	ID        uint64
	Deadline  time.Duration // since a time that the caller chooses
	Execution time.Duration
	Load      time.Duration // of the function's data; 0 if it is resident
}

// LatestStart returns the time at which the request has to start to meet its deadline. A request's slack is the time until then, so
// ordering requests by slack and by latest start is the same.
func (r Request) LatestStart() time.Duration { return r.Deadline - r.Execution - r.Load }

// Compare orders requests by slack at the time now, then by ID. Requests that can no longer meet their deadline follow all others: they
// have the least slack and would delay those that can. They are ordered by deadline plus load time, since otherwise two functions with a
// backlog would be loaded in turn for every request.
func Compare(now time.Duration, a, b Request) int {
	hopelessA, hopelessB := a.LatestStart() < now, b.LatestStart() < now // U13, U14
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

// Order sorts requests by their slack at the time now, as Compare defines it.
func Order(now time.Duration, requests []Request) {
	slices.SortFunc(requests, func(a, b Request) int { return Compare(now, a, b) })
}
