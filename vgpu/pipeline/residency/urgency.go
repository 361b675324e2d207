package residency

import (
	"container/heap"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/pipeline/routing"
)

// expire moves the requests that can no longer meet their deadline behind all others, or returns them if the policy refuses them.
func (n *Node) expireRequests() []Request {
	var refused []Request
	for _, f := range n.active {
		if len(f.waiting.live) == 0 {
			continue
		}
		execution, load := n.estimateTimes(f)
		for _, r := range f.waiting.popLate(n.now, execution+load) {
			if !n.policy.Refuse {
				heap.Push(&f.waiting.infeasible, r)
				continue
			}
			refused = append(refused, r.Request)
			n.outcomes.add(n.now, n.policy.Window, r.feasible)
		}
	}
	return refused
}

// estimate returns the times of a request that runs now: on its slice, or with a load on the fastest slice.
func (n *Node) estimateTimes(f *function) (execution, load time.Duration) {
	if f.on != nil {
		return f.on.executionTime(f), 0
	}
	load, _ = n.loadTime(f)
	return f.fastest, load
}

// load returns the time to load a function onto a slice, and from where.
func (n *Node) loadTime(f *function) (time.Duration, Source) {
	if f.on != nil || n.host.has(f) {
		return f.LoadWarm, Host
	}
	return f.LoadCold, Storage
}

// next returns where the most urgent request that can start now starts; false if none can.
func (n *Node) nextStart() (candidate, bool) {
	pending := n.pendingFunctions()
	for _, f := range pending {
		p, ok := n.bestCandidate(f)
		if !ok {
			continue
		}
		if first, found := n.residentFirst(p, pending); found {
			return first, true
		}
		return p, true
	}
	return candidate{}, false
}

// pending returns the functions whose next request may start, the most urgent first. An instance runs one request at a time.
func (n *Node) pendingFunctions() []*function {
	var pending []*function
	for _, f := range n.active {
		if !f.running && f.waiting.len() > 0 && f.runs {
			pending = append(pending, f)
		}
	}
	slices.SortFunc(pending, func(a, b *function) int { return routing.Compare(n.now, n.firstRequest(a), n.firstRequest(b)) })
	return pending
}

// head returns the first request of a function, with its times if it runs now.
func (n *Node) firstRequest(f *function) routing.Request {
	r := (*f.waiting.nextHeap())[0]
	execution, load := n.estimateTimes(f)
	return routing.Request{ID: r.ID, Deadline: r.Deadline, Execution: execution, Load: load}
}

// residentFirst returns a function resident on the slice of p that can run first without making the function of p late. The slack of a
// function that is not resident includes its load, so it appears more urgent; without this rule two functions that alternate
// would be loaded for nearly every request.
func (n *Node) residentFirst(p candidate, pending []*function) (candidate, bool) {
	if p.load == 0 {
		return candidate{}, false
	}
	latest := n.firstRequest(p.function).LatestStart()
	for _, f := range pending {
		if f.on == p.slice && len(f.waiting.live) > 0 && n.now+p.slice.executionTime(f) <= latest {
			return candidate{function: f, slice: p.slice, source: Resident}, true
		}
	}
	return candidate{}, false
}
