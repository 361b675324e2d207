package routing

import (
	"cmp"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// Instance is one instance of a function, as its load balancer sees it. Outstanding is counted by who routes, so that it
// is never out of date.
type Instance struct {
	ID          int
	Residency   scaling.Residency
	Draining    bool          // finishes what it has and takes nothing new (FF-63)
	Latency     time.Duration // of one request
	Capacity    int           // requests that a hot instance may have at once; pipelines have room for several
	Outstanding int           // of them, that it has
}

// Choose gives the position of the instance that takes the next request: of the hot ones with capacity left the one of
// least latency (FF-61), pipeline or not; else the shared one, else a warm one, without a limit: their queue decides
// (FF-62). It is false where there is none: then an instance has to be created.
func Choose(instances []Instance) (int, bool) {
	best := -1
	for i := range instances {
		if instances[i].takes() && (best < 0 || before(&instances[i], &instances[best]) < 0) {
			best = i
		}
	}
	return best, best >= 0
}

func (i *Instance) takes() bool {
	switch {
	case i.Draining || i.Residency < scaling.Hot || i.Residency >= scaling.Cold:
		return false
	case i.Residency == scaling.Hot:
		return i.Outstanding < i.Capacity
	}
	return true
}

func before(a, b *Instance) int {
	return cmp.Or(cmp.Compare(a.Residency, b.Residency), cmp.Compare(a.Latency, b.Latency), cmp.Compare(a.ID, b.ID))
}

// Route sends requests, the most urgent first. It gives the position of the instance of each, and -1 where there is none;
// both slices keep their order.
func Route(now time.Duration, requests []Request, instances []Instance) []int {
	order := make([]int, len(requests))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return Compare(now, requests[a], requests[b]) })
	left, to := slices.Clone(instances), make([]int, len(requests))
	for _, i := range order {
		at, ok := Choose(left)
		if to[i] = at; ok {
			left[at].Outstanding++
		}
	}
	return to
}
