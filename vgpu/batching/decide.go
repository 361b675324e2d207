package batching

import (
	"container/heap"
	"time"
)

// Decision is what to do now. The requests in it have left the queue.
type Decision struct {
	Fire    []Request // send as one batch to an idle replica, and ask again
	Refused []Request // will be late whatever is done: answer at once, spend no GPU time on them
	Wake    time.Time // ask again then, if nothing happens before; zero: only when something happens
}

// Decide refuses what can no longer be in time, then fires a batch if a replica is idle and the batch is full, or its
// head must start now, or waiting for another request gains nothing. Call it after arrivals, when a replica becomes idle,
// and at Wake.
func (q *Queue) Decide(now time.Time, load Load) Decision {
	d := Decision{Refused: q.late(now, 1)}
	if load.Idle > 0 && len(q.heap) > q.config.MaxBatch {
		d.Refused = append(d.Refused, q.late(now, q.config.MaxBatch)...)
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

// late removes the requests, from the head, that would miss their deadline if they started now in a batch of the given
// size. Normally that is one. But if more than a full batch waits, small batches for the sake of an urgent head would cost
// those behind it more: it is given up if a full batch is too slow for it.
func (q *Queue) late(now time.Time, batch int) []Request {
	var refused []Request
	for len(q.heap) > 0 && q.latestStart(min(batch, len(q.heap))).Before(now) {
		refused = append(refused, heap.Pop(&q.heap).(Request))
	}
	return refused
}

// latestStart returns when the head must start in a batch of the given size.
func (q *Queue) latestStart(batch int) time.Time {
	return q.heap[0].Deadline.Add(-q.config.Latency(batch) - q.config.Margin)
}

// size returns the largest batch that still has its head in time. The head is the most urgent, so the others are in time too.
func (q *Queue) size(now time.Time) int {
	size := min(len(q.heap), q.config.MaxBatch)
	for size > 1 && q.latestStart(size).Before(now) {
		size--
	}
	return size
}

// worthWaiting weighs what one more request in the batch saves, the time of a batch of its own, against what the wait
// for it costs those that are here. Both are in request-seconds.
func (q *Queue) worthWaiting(rate float64) bool {
	n := len(q.heap)
	if q.config.Fill {
		return true
	}
	saved := q.config.Latency(n) + q.config.Latency(1) - q.config.Latency(n+1)
	return rate > 0 && float64(n)/rate < saved.Seconds()
}
