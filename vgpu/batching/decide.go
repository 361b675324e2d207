package batching

import (
	"container/heap"
	"time"
)

// Decision is what a batching queue decides at one moment: the batch to run, the requests to refuse, and when to decide again. The
// requests of both lists have been removed from the queue.
type Decision struct {
	Fire    []Request // send as one batch to an idle replica, and ask again
	Refused []Request // will be late whatever is done: answer at once, spend no GPU time on them
	Wake    time.Time // ask again then, if nothing happens before; zero: only when something happens
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
