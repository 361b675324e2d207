package serving

import (
	"slices"
	"sort"
	"time"
)

// slackQueue holds the requests of one function, all with the same SLO: the order of slack is that of arrival, and those that
// cannot be in time any more go after all that can (U14), or are refused.
type slackQueue struct {
	record   *record
	refuses  bool
	alive    []int32
	hopeless []int32
}

func (q *slackQueue) len() int { return len(q.alive) + len(q.hopeless) }

// live returns how many may still be in time.
func (q *slackQueue) live() int { return len(q.alive) }

func (q *slackQueue) add(request int32) { q.alive = append(q.alive, request) }

// giveUp sorts out the requests that would be late even on the fastest instance.
func (q *slackQueue) giveUp(now, fastest time.Duration) {
	n := 0
	for n < len(q.alive) && q.record.deadline(q.alive[n]) < now+fastest {
		if q.refuses {
			q.record.refuse(q.alive[n])
		} else {
			q.hopeless = append(q.hopeless, q.alive[n])
		}
		n++
	}
	q.alive = q.alive[n:]
}

// pop returns the most urgent request for an instance that will take some time for it: of those that it can answer in time, else,
// for an idle instance, of the hopeless ones. False if there is none: what an instance would make late, a faster one may not.
func (q *slackQueue) pop(now, takes time.Duration, idle bool) (int32, bool) {
	at := sort.Search(len(q.alive), func(i int) bool { return q.record.deadline(q.alive[i]) >= now+takes })
	switch {
	case at == len(q.alive) && (len(q.hopeless) == 0 || !idle):
		return 0, false
	case at == len(q.alive):
		request := q.hopeless[0]
		q.hopeless = q.hopeless[1:]
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
