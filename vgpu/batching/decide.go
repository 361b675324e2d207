package batching

import (
	"container/heap"
	"time"
)

// Decision is the action to take now. Its requests have been removed from the queue.
type Decision struct {
	Fire    []Request // send as one batch to an idle replica, and ask again
	Refused []Request // will be late whatever is done: answer at once, spend no GPU time on them
	Wake    time.Time // ask again then, if nothing happens before; zero: only when something happens
}

// Decide refuses requests that cannot meet their deadlines, then returns a batch if a replica is idle and the batch is full,
// its first request must start now, or waiting for another request does not pay. Call it after arrivals, when a replica
// becomes idle, and at Wake.
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
	size := q.size(now)
	if must := q.latestStart(min(len(q.heap)+1, q.config.MaxBatch)); size < q.config.MaxBatch && now.Before(must) && q.worthWaiting(load.Rate) {
		d.Wake = must
		return d
	}
	for range size {
		d.Fire = append(d.Fire, heap.Pop(&q.heap).(Request))
	}
	return d
}

// removeLate removes and returns the requests at the head that would be late if they started now in a batch of the given
// size. The size is normally one. If more than a full batch waits it is MaxBatch, because small batches for urgent requests
// would delay the others more.
func (q *Queue) removeLate(now time.Time, batch int) []Request {
	var refused []Request
	for len(q.heap) > 0 && q.latestStart(min(batch, len(q.heap))).Before(now) {
		refused = append(refused, heap.Pop(&q.heap).(Request))
	}
	return refused
}

// latestStart returns when the first request must start in a batch of the given size to meet its deadline.
func (q *Queue) latestStart(batch int) time.Time {
	return q.heap[0].Deadline.Add(-q.config.Latency(batch) - q.config.Margin)
}

// size returns the largest batch size that meets the deadline of the first request, and thereby the later ones of the
// others.
func (q *Queue) size(now time.Time) int {
	size := min(len(q.heap), q.config.MaxBatch)
	for size > 1 && q.latestStart(size).Before(now) {
		size--
	}
	return size
}

// worthWaiting reports whether adding one more request to the batch saves more time, that of a batch of its own, than
// waiting for it costs the queued requests. Both are in request-seconds.
func (q *Queue) worthWaiting(rate float64) bool {
	n := len(q.heap)
	if q.config.Fill {
		return true
	}
	saved := q.config.Latency(n) + q.config.Latency(1) - q.config.Latency(n+1)
	return rate > 0 && float64(n)/rate < saved.Seconds()
}
