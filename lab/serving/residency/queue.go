package residency

import (
	"cmp"
	"container/heap"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/pipeline/routing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Request is an inference request for a function that runs on shared slices.
type Request struct {
	ID       uint64
	Function string
	Deadline time.Duration // on the same clock as the argument now
}

type queuedRequest struct {
	Request
	feasible bool // could meet its deadline when it was enqueued
}

// requestQueue holds the waiting requests of one function. All need the same execution and load time, so they are ordered by deadline;
// only the first requests of different functions have to be compared at each dispatch.
type requestQueue struct {
	live       deadlineHeap
	infeasible deadlineHeap // can no longer meet their deadline (U14)
}

func (q *requestQueue) len() int { return len(q.live) + len(q.infeasible) }

// popLate removes and returns the requests that can no longer meet their deadline if each still takes the time needed.
func (q *requestQueue) popLate(now, needed time.Duration) []queuedRequest {
	var lost []queuedRequest
	for len(q.live) > 0 && q.live[0].Deadline-needed < now {
		lost = append(lost, heap.Pop(&q.live).(queuedRequest))
	}
	return lost
}

// nextHeap returns the heap that holds the function's next request. Requests that can still meet their deadline go before those that
// cannot.
func (q *requestQueue) nextHeap() *deadlineHeap {
	if len(q.live) > 0 {
		return &q.live
	}
	return &q.infeasible
}

func (q *requestQueue) pop() queuedRequest { return heap.Pop(q.nextHeap()).(queuedRequest) }

// Enqueue adds a request for the shared instance of its function and creates the instance if there is none. Errors are *share.FieldError.
func (n *Node) Enqueue(now time.Duration, r Request) error {
	n.advanceClock(now)
	f, err := n.functionFor(r.Function, r.Deadline)
	if err != nil {
		return err
	}
	n.keepInstance(f)
	heap.Push(&f.waiting.live, queuedRequest{Request: r, feasible: n.isFeasible(f, r.Deadline)})
	return nil
}

// functionFor returns the function of a request with a deadline. Errors are *share.FieldError.
func (n *Node) functionFor(name string, deadline time.Duration) (*function, error) {
	f := n.functions[name]
	switch {
	case f == nil:
		return nil, share.Invalid("function", "%.64q is not registered", name)
	case deadline < -maxInstant || deadline > maxInstant:
		return nil, share.Invalid("deadline", "%v is more than %v away", deadline, maxInstant)
	}
	return f, nil
}

// keepInstance creates the instance of a function that has requests, if there is none, and counts it as used.
func (n *Node) keepInstance(f *function) {
	if !f.exists {
		f.exists, f.since = true, n.now
	}
	f.terminating, f.used = false, n.now
	if !f.active {
		f.active, n.active = true, append(n.active, f)
	}
}

// isFeasible reports whether a request of a function could meet its deadline if it ran now.
func (n *Node) isFeasible(f *function, deadline time.Duration) bool {
	execution, load := n.estimateTimes(f)
	return n.now+load+execution <= deadline
}

// maxInstant is the largest absolute value of a time, so that differences of times do not overflow.
const maxInstant = 100 * 365 * 24 * time.Hour

// deadlineHeap is a heap of requests by deadline, for container/heap.
type deadlineHeap []queuedRequest

func (d deadlineHeap) Len() int { return len(d) }
func (d deadlineHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(d[i].Deadline, d[j].Deadline), cmp.Compare(d[i].ID, d[j].ID)) < 0
}
func (d deadlineHeap) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *deadlineHeap) Push(x any)   { *d = append(*d, x.(queuedRequest)) }
func (d *deadlineHeap) Pop() any {
	last := len(*d) - 1
	r := (*d)[last]
	*d = (*d)[:last]
	return r
}

// expireRequests moves the requests that can no longer meet their deadline behind all others. If the policy refuses such requests, it
// removes and returns them instead.
func (n *Node) expireRequests() []Request {
	var refused []Request
	for _, f := range n.active {
		if len(f.waiting.live) == 0 {
			continue
		}
		execution, load := n.estimateTimes(f)
		for _, r := range f.waiting.popLate(n.now, execution+load) {
			if !n.policy.Refuse { // U14
				heap.Push(&f.waiting.infeasible, r)
				continue
			}
			refused = append(refused, r.Request)
			n.outcomes.add(n.now, n.policy.Window, r.feasible)
		}
	}
	return refused
}

// estimateTimes returns the execution and the load time of a function's request if it ran now: without a load on the slice that holds
// the function's data, if there is one, and otherwise on the fastest slice.
func (n *Node) estimateTimes(f *function) (execution, load time.Duration) {
	if f.on != nil {
		return f.on.executionTime(f), 0
	}
	load, _ = n.loadTime(f)
	return f.fastest, load
}

// loadTime returns how long it takes to load a function's data onto a slice, and from where it is loaded.
func (n *Node) loadTime(f *function) (time.Duration, Source) {
	if f.on != nil || n.host.has(f) {
		return f.LoadWarm, Host
	}
	return f.LoadCold, Storage
}

// nextStart returns the most urgent request that can start now, as a function and the slice for it; false if none can.
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

// pendingFunctions returns the functions with waiting requests that may start now, the most urgent first. It leaves out functions that
// already run a request, because an instance runs one request at a time.
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

// firstRequest returns the first waiting request of a function, with the times that it would take now.
func (n *Node) firstRequest(f *function) routing.Request {
	r := (*f.waiting.nextHeap())[0]
	execution, load := n.estimateTimes(f)
	return routing.Request{ID: r.ID, Deadline: r.Deadline, Execution: execution, Load: load}
}

// residentFirst returns a function whose data is already on the slice of candidate p, and which can run there first without making p's request
// late. Without this rule two functions that alternate would be loaded for nearly every request: the slack of the function that is not loaded
// includes its load time, so that it always appears more urgent.
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
