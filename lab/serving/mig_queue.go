package serving

import (
	"slices"
	"sort"
	"time"
)

// slackQueue holds the requests of one function in the order of arrival, which is that of their deadlines as they have the same SLO.
// Overdue requests, which can no longer meet their SLO, run after all others or are refused.
type slackQueue struct {
	record  *record
	refuses bool
	alive   []int32
	overdue []int32
}

func (q *slackQueue) len() int { return len(q.alive) + len(q.overdue) }

// liveCount returns the number of requests that may still meet their SLO.
func (q *slackQueue) liveCount() int { return len(q.alive) }

func (q *slackQueue) add(request int32) { q.alive = append(q.alive, request) }

// expire refuses or sets aside the requests that would be late even on the fastest instance.
func (q *slackQueue) expire(now, fastest time.Duration) {
	n := 0
	for n < len(q.alive) && q.record.deadline(q.alive[n]) < now+fastest {
		if q.refuses {
			q.record.refuse(q.alive[n])
		} else {
			q.overdue = append(q.overdue, q.alive[n])
		}
		n++
	}
	q.alive = q.alive[n:]
}

// pop removes and returns the request with the earliest deadline that an instance with the given execution time can meet. If there is
// none, an idle instance gets an overdue request. It returns false if no request is suitable; a faster instance may still meet the
// deadlines of those that wait.
func (q *slackQueue) pop(now, takes time.Duration, idle bool) (int32, bool) {
	at := sort.Search(len(q.alive), func(i int) bool { return q.record.deadline(q.alive[i]) >= now+takes })
	switch {
	case at == len(q.alive) && (len(q.overdue) == 0 || !idle):
		return 0, false
	case at == len(q.alive):
		request := q.overdue[0]
		q.overdue = q.overdue[1:]
		return request, true
	case at == 0:
		request := q.alive[0]
		q.alive = q.alive[1:]
		return request, true
	}
	request := q.alive[at]
	q.alive = slices.Delete(q.alive, at, at+1)
	return request, true
}
