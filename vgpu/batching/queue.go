package batching

import (
	"container/heap"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Request is one request to an application of a group.
type Request struct {
	ID          uint64 // the caller's; ties between deadlines are broken by it
	Application int
	Deadline    time.Time // arrival + SLO of its application
}

// Config is the batching policy of a group of applications.
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

// Queue holds the requests of one group by ascending deadline; it executes the batching policy of a plan (PA-03). As one
// deployment serves all of them, deadlines order the latest start times too. It is not safe for concurrent use.
type Queue struct {
	config Config
	heap   deadlines
}

// New returns an empty queue. Errors are *share.FieldError.
func New(c Config) (*Queue, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Queue{config: c}, nil
}

// Len returns the number of queued requests.
func (q *Queue) Len() int { return len(q.heap) }

// Load is the state of the replicas and the expected arrival rate.
type Load struct {
	Replicas int       // that serve the group
	Idle     int       // of them, that could take a batch now
	FreeAt   time.Time // when the first busy one will be free; of no account if one is idle
	Rate     float64   // expected arrivals a second; 0 if unknown
}

// Add queues a request. It refuses it and returns false if the request is predicted to be late: after those with earlier
// deadlines, in full batches on all replicas, it would be late even in a batch of its own.
func (q *Queue) Add(r Request, now time.Time, load Load) bool {
	if q.start(q.ahead(r), now, load).Add(q.config.Latency(1) + q.config.Margin).After(r.Deadline) {
		return false
	}
	heap.Push(&q.heap, r)
	return true
}

// ahead returns the number of queued requests that would run before r.
func (q *Queue) ahead(r Request) int {
	n := 0
	for _, other := range q.heap {
		if earlier(other, r) {
			n++
		}
	}
	return n
}

// start returns the predicted start time of a request with n others ahead, which run in full batches on all replicas.
func (q *Queue) start(n int, now time.Time, load Load) time.Time {
	if load.Idle == 0 && load.FreeAt.After(now) {
		now = load.FreeAt
	}
	rounds := n / (q.config.MaxBatch * max(load.Replicas, 1))
	return now.Add(time.Duration(rounds) * q.config.Latency(q.config.MaxBatch))
}

// deadlines implements heap.Interface, ordered by deadline.
type deadlines []Request

func earlier(a, b Request) bool {
	if order := a.Deadline.Compare(b.Deadline); order != 0 {
		return order < 0
	}
	return a.ID < b.ID
}

func (d deadlines) Len() int           { return len(d) }
func (d deadlines) Less(i, j int) bool { return earlier(d[i], d[j]) }
func (d deadlines) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *deadlines) Push(x any)        { *d = append(*d, x.(Request)) }
func (d *deadlines) Pop() any {
	last := len(*d) - 1
	r := (*d)[last]
	*d = (*d)[:last]
	return r
}
