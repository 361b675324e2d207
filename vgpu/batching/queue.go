package batching

import (
	"container/heap"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Request is one inference request to one of the applications that a deployment serves.
type Request struct {
	ID          uint64 // the caller's; ties between deadlines are broken by it
	Application int
	Deadline    time.Time // arrival + SLO of its application
}

// Config is the batching policy of a deployment that serves a group of applications.
type Config struct {
	MaxBatch int
	// Latency is the p99 of a batch of 1 to MaxBatch on one replica, and must not fall with the size.
	Latency func(batch int) time.Duration
	Margin  time.Duration // kept between the predicted finish and the deadline
	// Fill waits for more requests until the batch is full or its head must start. Plans whose cost is per batch say so.
	// Without it nobody waits on an idle replica unless waiting saves more time than it costs.
	Fill bool
}

func (c Config) validate() error {
	switch {
	case c.MaxBatch < 1:
		return share.Invalid("MaxBatch", "%d is not positive", c.MaxBatch)
	case c.Latency == nil:
		return share.Invalid("Latency", "is missing")
	case c.Margin < 0:
		return share.Invalid("Margin", "%v is negative", c.Margin)
	}
	return nil
}

// Queue holds the requests of one deployment by ascending deadline and decides when they run as a batch. As all of them run on the same
// configuration, the order of deadlines is also that of the latest start times. It is not safe for concurrent use.
type Queue struct {
	config Config
	heap   deadlineHeap
}

// New returns an empty batching queue. Errors are *share.FieldError.
func New(c Config) (*Queue, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Queue{config: c}, nil
}

// Len returns the number of queued requests.
func (q *Queue) Len() int { return len(q.heap) }

// Load is the state of a deployment's replicas and its expected arrival rate, on which a batching decision depends.
type Load struct {
	Replicas int       // that serve the group
	Idle     int       // of them, that could take a batch now
	FreeAt   time.Time // when the first busy one will be free; of no account if one is idle
	Rate     float64   // expected arrivals a second; 0 if unknown
}

// Add queues a request, or refuses it and returns false. A request is refused if it is predicted to miss its deadline even in a batch of
// its own, after the requests with earlier deadlines have run in full batches on all replicas.
func (q *Queue) Add(r Request, now time.Time, load Load) bool {
	if q.predictStart(q.countAhead(r), now, load).Add(q.config.Latency(1) + q.config.Margin).After(r.Deadline) {
		return false
	}
	heap.Push(&q.heap, r)
	return true
}

// countAhead returns the number of queued requests that would run before request r.
func (q *Queue) countAhead(r Request) int {
	n := 0
	for _, other := range q.heap {
		if earlier(other, r) {
			n++
		}
	}
	return n
}

// predictStart returns the predicted start time of a request that n queued requests precede, if those run in full batches on all
// replicas.
func (q *Queue) predictStart(n int, now time.Time, load Load) time.Time {
	if load.Idle == 0 && load.FreeAt.After(now) {
		now = load.FreeAt
	}
	rounds := n / (q.config.MaxBatch * max(load.Replicas, 1))
	return now.Add(time.Duration(rounds) * q.config.Latency(q.config.MaxBatch))
}

// deadlineHeap is a heap of requests by deadline, for container/heap.
type deadlineHeap []Request

func earlier(a, b Request) bool {
	if order := a.Deadline.Compare(b.Deadline); order != 0 {
		return order < 0
	}
	return a.ID < b.ID
}

func (d deadlineHeap) Len() int           { return len(d) }
func (d deadlineHeap) Less(i, j int) bool { return earlier(d[i], d[j]) }
func (d deadlineHeap) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *deadlineHeap) Push(x any)        { *d = append(*d, x.(Request)) }
func (d *deadlineHeap) Pop() any {
	last := len(*d) - 1
	r := (*d)[last]
	*d = (*d)[:last]
	return r
}
