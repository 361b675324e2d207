package serving

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/batching"
)

// queue holds the requests of one function until an instance takes them. load.FreeAt and the times are as batching has
// them, counted from epoch.
type queue interface {
	// add is false if the request is refused.
	add(request int32, deadline, now time.Duration, load batching.Load) bool
	// next returns the batch that an instance with batches of at most most should run now, or none; the requests that are
	// given up; and when to ask again if nothing happens before, zero for not at all.
	next(most int, now time.Duration, load batching.Load) (fire, refused []int32, wake time.Duration)
	len() int
}

var epoch = time.Unix(0, 0)

func instant(d time.Duration) time.Time { return epoch.Add(d) }

// fifo is the queue of the baselines: first come, first served, in batches as large as there are requests. Nobody is
// refused.
type fifo struct {
	waiting []int32
	first   int
}

func (q *fifo) len() int { return len(q.waiting) - q.first }

func (q *fifo) add(request int32, _, _ time.Duration, _ batching.Load) bool {
	if q.first > 1024 && 2*q.first > len(q.waiting) {
		q.waiting = q.waiting[:copy(q.waiting, q.waiting[q.first:])]
		q.first = 0
	}
	q.waiting = append(q.waiting, request)
	return true
}

func (q *fifo) next(most int, _ time.Duration, load batching.Load) (fire, refused []int32, wake time.Duration) {
	n := min(q.len(), most)
	if load.Idle == 0 || n == 0 {
		return nil, nil, 0
	}
	fire = append(fire, q.waiting[q.first:q.first+n]...)
	q.first += n
	return fire, nil, 0
}

// urgent is gshare's queue: package batching.
type urgent struct {
	*batching.Queue
}

func (q urgent) len() int { return q.Queue.Len() }

func (q urgent) add(request int32, deadline, now time.Duration, load batching.Load) bool {
	return q.Add(batching.Request{ID: uint64(request), Deadline: instant(deadline)}, instant(now), load)
}

func (q urgent) next(_ int, now time.Duration, load batching.Load) (fire, refused []int32, wake time.Duration) {
	d := q.Decide(instant(now), load)
	if !d.Wake.IsZero() {
		wake = d.Wake.Sub(epoch)
	}
	return requests(d.Fire), requests(d.Refused), wake
}

func requests(from []batching.Request) []int32 {
	if len(from) == 0 {
		return nil
	}
	out := make([]int32, len(from))
	for i, r := range from {
		out[i] = int32(r.ID)
	}
	return out
}
