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
	// Fill waits for more requests until the batch is full or its head must start. It is for plans that pay per
	// batch. Without it no request waits for an idle replica unless waiting saves more time than it costs.
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
	Idle     int       // replicas that could run a batch now
	FreeAt   time.Time // when the first busy replica will be free; ignored if one is idle
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

// Decision is what a batching queue decides at one moment: the batch to run, the requests to refuse, and when to decide again. The
// requests of both lists have been removed from the queue.
type Decision struct {
	Fire    []Request // send as one batch to an idle replica, and call Decide again
	Refused []Request // will miss their deadlines in any case: answer at once, without GPU time
	Wake    time.Time // when to call Decide again if nothing happens before; zero if only an event requires it
}

// Decide refuses the requests that cannot meet their deadlines. It then returns a batch if a replica is idle and the batch is full, its
// first request must start now, or waiting for another request costs more time than it saves. Call it after an arrival, when a replica
// becomes idle, and at the Wake time of the last Decision.
func (q *Queue) Decide(now time.Time, load Load) Decision {
	d := Decision{Refused: q.removeLate(now, 1)}
	if load.Idle > 0 && len(q.heap) > q.config.MaxBatch {
		d.Refused = append(d.Refused, q.removeLate(now, q.config.MaxBatch)...)
	}
	if len(q.heap) == 0 {
		return d
	}
	if load.Idle == 0 {
		d.Wake = q.latestStart(1).Add(time.Nanosecond) // the head is refused then, if it is still here
		return d
	}
	size := q.largestBatch(now)
	if must := q.latestStart(min(len(q.heap)+1, q.config.MaxBatch)); size < q.config.MaxBatch && now.Before(must) && q.isWorthWaiting(load.Rate) {
		d.Wake = must
		return d
	}
	for range size {
		d.Fire = append(d.Fire, heap.Pop(&q.heap).(Request))
	}
	return d
}

// removeLate removes and returns the requests at the head of the queue that would miss their deadlines if they started now in a batch of
// the given size. The size is normally one. If more than a full batch waits it is MaxBatch, because small batches for urgent requests
// would delay the others more.
func (q *Queue) removeLate(now time.Time, batch int) []Request {
	var refused []Request
	for len(q.heap) > 0 && q.latestStart(min(batch, len(q.heap))).Before(now) {
		refused = append(refused, heap.Pop(&q.heap).(Request))
	}
	return refused
}

// latestStart returns the latest time at which the first queued request can start in a batch of the given size and meet its deadline.
func (q *Queue) latestStart(batch int) time.Time {
	return q.heap[0].Deadline.Add(-q.config.Latency(batch) - q.config.Margin)
}

// largestBatch returns the largest batch size with which the first queued request meets its deadline, if the batch starts now. The other
// requests have later deadlines and meet theirs too.
func (q *Queue) largestBatch(now time.Time) int {
	size := min(len(q.heap), q.config.MaxBatch)
	for size > 1 && q.latestStart(size).Before(now) {
		size--
	}
	return size
}

// isWorthWaiting reports whether waiting for one more request saves more GPU time, by not running that request in a batch of its own,
// than it costs the queued requests in waiting time. Both are in request-seconds.
func (q *Queue) isWorthWaiting(rate float64) bool {
	n := len(q.heap)
	if q.config.Fill {
		return true
	}
	saved := q.config.Latency(n) + q.config.Latency(1) - q.config.Latency(n+1)
	return rate > 0 && float64(n)/rate < saved.Seconds()
}
