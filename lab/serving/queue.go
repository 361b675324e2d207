package serving

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/batching"
)

// queue holds the requests of one function until an instance takes them. Times are durations since the start of the simulation.
type queue interface {
	// add queues a request. It returns false if the queue refuses it.
	add(request int32, deadline, now time.Duration, load batching.Load) bool
	// next returns the batch of at most `most` requests that an instance should run now, if any; the refused
	// requests; and the latest time at which to call it again, zero if nothing is to be done until an event.
	next(most int, now time.Duration, load batching.Load) (fire, refused []int32, wake time.Duration)
	len() int
}

var epoch = time.Unix(0, 0)

func instant(d time.Duration) time.Time { return epoch.Add(d) }

// fifoQueue is the queue of the baseline policies: first in, first out, in batches of all waiting requests up to the limit. It refuses
// nothing.
type fifoQueue struct {
	waiting []int32
	first   int
}

func (q *fifoQueue) len() int { return len(q.waiting) - q.first }

func (q *fifoQueue) add(request int32, _, _ time.Duration, _ batching.Load) bool {
	if q.first > 1024 && 2*q.first > len(q.waiting) {
		q.waiting = q.waiting[:copy(q.waiting, q.waiting[q.first:])]
		q.first = 0
	}
	q.waiting = append(q.waiting, request)
	return true
}

func (q *fifoQueue) next(most int, _ time.Duration, load batching.Load) (fire, refused []int32, wake time.Duration) {
	n := min(q.len(), most)
	idle := slices.ContainsFunc(load.Replicas, func(r batching.Replica) bool { return !r.Busy })
	if !idle || n == 0 {
		return nil, nil, 0
	}
	fire = append(fire, q.waiting[q.first:q.first+n]...)
	q.first += n
	return fire, nil, 0
}

// deadlineQueue is the queue of gshare's policy. It adapts batching.Queue, which orders requests by deadline.
type deadlineQueue struct {
	*batching.Queue
}

func (q deadlineQueue) len() int { return q.Queue.Len() }

func (q deadlineQueue) add(request int32, deadline, now time.Duration, load batching.Load) bool {
	return q.Add(batching.Request{ID: uint64(request), Deadline: instant(deadline)}, instant(now), load)
}

func (q deadlineQueue) next(_ int, now time.Duration, load batching.Load) (fire, refused []int32, wake time.Duration) {
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
