// Package routing orders requests and selects an instance for each, like FluidFaaS's load balancer: requests with the least
// slack go first, to hot instances while these have capacity, then to the instance that shares a slice.
package routing

import (
	"cmp"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// Instance is one instance of a function, as the load balancer sees it. The load balancer counts Outstanding itself, so that it is always
// current.
type Instance struct {
	ID          int
	Residency   scaling.Residency
	Draining    bool          // finishes its requests and gets no new ones
	Latency     time.Duration // of one request
	Capacity    int           // requests that a hot instance may have at once; more than one for a pipeline
	Outstanding int           // requests that it has now
}

// Choose returns the index of the instance for the next request: the hot one with the least latency among those with capacity left,
// otherwise the shared one, otherwise a warm one. Shared and warm instances have no capacity limit, because requests wait in their
// queue. It returns false if an instance must be created.
func Choose(instances []Instance) (int, bool) {
	best := -1
	for i := range instances {
		if instances[i].accepts() && (best < 0 || compareInstances(&instances[i], &instances[best]) < 0) {
			best = i
		}
	}
	return best, best >= 0
}

// accepts reports whether the instance can take another request.
func (i *Instance) accepts() bool {
	switch {
	case i.Draining || i.Residency < scaling.Hot || i.Residency >= scaling.Cold:
		return false
	case i.Residency == scaling.Hot:
		return i.Outstanding < i.Capacity
	}
	return true
}

// compareInstances orders instances by rank, then ID.
func compareInstances(a, b *Instance) int {
	return cmp.Or(Rank{a.Residency, a.Latency}.Compare(Rank{b.Residency, b.Latency}), cmp.Compare(a.ID, b.ID))
}

// Rank determines which of two instances that can both take a request gets it: a hot one before a shared one, and among equals the
// faster one.
type Rank struct {
	Residency scaling.Residency
	Latency   time.Duration // of one request
}

// Compare is negative if an instance of rank r gets requests before one of rank other.
func (r Rank) Compare(other Rank) int {
	return cmp.Or(cmp.Compare(r.Residency, other.Residency), cmp.Compare(r.Latency, other.Latency))
}

// Request is a request that waits for an instance. Its Execution and Load times are estimated at dispatch, not at arrival, because they
// depend on the slice: a function that is resident there need not be loaded.
type Request struct {
	ID        uint64
	Deadline  time.Duration // from a time of the caller's choice
	Execution time.Duration
	Load      time.Duration // of the function's data; 0 if that is resident
}

// LatestStart returns the latest time at which the request can start and meet its deadline. A request's slack is the time until
// then, so ordering by slack and ordering by latest start are the same.
func (r Request) LatestStart() time.Duration { return r.Deadline - r.Execution - r.Load }

// Compare orders requests by slack at the time now, then by ID. Requests that can no longer meet their deadline come after all others:
// although they have the least slack, they would only delay requests that still can. Among themselves they are ordered by deadline plus
// load time; otherwise two functions with a backlog would be loaded alternately, once for every request.
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
