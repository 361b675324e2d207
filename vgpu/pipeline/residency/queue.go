package residency

import (
	"cmp"
	"container/heap"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Request is to be run by the shared instance of its function.
type Request struct {
	ID       uint64
	Function string
	Deadline time.Duration // from the same fixed point as now
}

// queued is a request that waits.
type queued struct {
	Request
	winnable bool // it could have met its deadline if it had been run at once
}

// queue holds the requests of one function. At any moment all need the same execution and load, so their order of slack is
// that of deadlines, and only the heads of different functions have to be compared anew (U13).
type queue struct {
	live     deadlines
	hopeless deadlines // cannot meet their deadline any more (U14)
}

func (q *queue) len() int { return len(q.live) + len(q.hopeless) }

// lost takes the requests that can no longer meet their deadline, being in need of that much time, out of the live ones.
func (q *queue) lost(now, needed time.Duration) []queued {
	var lost []queued
	for len(q.live) > 0 && q.live[0].Deadline-needed < now {
		lost = append(lost, heap.Pop(&q.live).(queued))
	}
	return lost
}

// next is the queue's part that the next request comes from: live ones go first.
func (q *queue) next() *deadlines {
	if len(q.live) > 0 {
		return &q.live
	}
	return &q.hopeless
}

func (q *queue) pop() queued { return heap.Pop(q.next()).(queued) }

// Enqueue takes a request for the shared instance of its function; the first one creates the instance (FF-44). Errors are
// *share.FieldError.
func (n *Node) Enqueue(now time.Duration, r Request) error {
	n.advance(now)
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
	f.leaving, f.used = false, n.now
	execution, load := n.estimate(f)
	if !f.active {
		f.active, n.active = true, append(n.active, f)
	}
	heap.Push(&f.waiting.live, queued{r, n.now+load+execution <= r.Deadline})
	return nil
}

// maxInstant keeps differences of times from overflowing.
const maxInstant = 100 * 365 * 24 * time.Hour

// deadlines is a heap for container/heap.
type deadlines []queued

func (d deadlines) Len() int { return len(d) }
func (d deadlines) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(d[i].Deadline, d[j].Deadline), cmp.Compare(d[i].ID, d[j].ID)) < 0
}
func (d deadlines) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *deadlines) Push(x any)   { *d = append(*d, x.(queued)) }
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	r := (*d)[last]
	*d = (*d)[:last]
	return r
}
