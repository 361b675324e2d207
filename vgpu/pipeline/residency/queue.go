package residency

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Request is an inference request for the shared instance of its function.
type Request struct {
	ID       uint64
	Function string
	Deadline time.Duration // on the clock of now
}

type queuedRequest struct {
	Request
	feasible bool // whether it could meet its deadline when it was enqueued
}

// requestQueue holds the waiting requests of one function. All need the same execution and load time, so they are ordered by deadline;
// only the first requests of different functions have to be compared at each dispatch.
type requestQueue struct {
	live       deadlineHeap
	infeasible deadlineHeap // can no longer meet their deadline (U14)
}

func (q *requestQueue) len() int { return len(q.live) + len(q.infeasible) }

// popLate removes and returns the requests that can no longer meet their deadline if each needs the given time.
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
