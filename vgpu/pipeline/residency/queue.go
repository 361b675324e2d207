package residency

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Request is a request for the shared instance of its function.
type Request struct {
	ID       uint64
	Function string
	Deadline time.Duration // on the clock of now
}

// queued is a request that waits.
type queuedRequest struct {
	Request
	feasible bool // whether it could meet its deadline when it was enqueued
}

// queue holds the waiting requests of one function. All have the same execution and load time, so they are ordered by deadline;
// only the first requests of different functions are compared at each dispatch (U13).
type requestQueue struct {
	live       deadlineHeap
	infeasible deadlineHeap // can no longer meet their deadline (U14)
}

// len returns the number of waiting requests.
func (q *requestQueue) len() int { return len(q.live) + len(q.infeasible) }

// lost removes and returns the live requests that can no longer meet their deadline if each needs that much time.
func (q *requestQueue) popLate(now, needed time.Duration) []queuedRequest {
	var lost []queuedRequest
	for len(q.live) > 0 && q.live[0].Deadline-needed < now {
		lost = append(lost, heap.Pop(&q.live).(queuedRequest))
	}
	return lost
}

// next returns the heap with the next request: live requests go first.
func (q *requestQueue) nextHeap() *deadlineHeap {
	if len(q.live) > 0 {
		return &q.live
	}
	return &q.infeasible
}

// pop removes and returns the next request.
func (q *requestQueue) pop() queuedRequest { return heap.Pop(q.nextHeap()).(queuedRequest) }

// Enqueue adds a request for the shared instance of its function, which the first request creates (FF-44). Errors are
// *share.FieldError.
func (n *Node) Enqueue(now time.Duration, r Request) error {
	n.advanceClock(now)
	f := n.functions[r.Function]
	switch {
	case f == nil:
		return share.Invalid("function", "%.64q is not registered", r.Function)
	case r.Deadline < -maxInstant || r.Deadline > maxInstant:
		return share.Invalid("deadline", "%v is more than %v away", r.Deadline, maxInstant)
	}
	if !f.exists {
		f.exists, f.since = true, n.now
	}
	f.terminating, f.used = false, n.now
	execution, load := n.estimateTimes(f)
	if !f.active {
		f.active, n.active = true, append(n.active, f)
	}
	heap.Push(&f.waiting.live, queuedRequest{r, n.now+load+execution <= r.Deadline})
	return nil
}

// maxInstant bounds times, so that their differences do not overflow.
const maxInstant = 100 * 365 * 24 * time.Hour

// deadlines is a heap of requests by deadline, for container/heap.
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
