package batching

import (
	"math"
	"sort"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Request is one inference request.
type Request struct {
	ID       uint64    // chosen by the caller; breaks ties between deadlines
	Deadline time.Time // arrival + SLO of its application
}

// Config is the batching policy of a deployment that serves a group of applications.
type Config struct {
	// MaxBatch and Latency apply to replicas without values of their own. Latency is the p99 of a batch of 1 to MaxBatch requests, and must
	// not fall with the size.
	MaxBatch int
	Latency  func(batch int) time.Duration
	Margin   time.Duration // kept between the predicted finish and the deadline
	// Fill makes requests wait until the batch is full or its first request must start. It is for plans that
	// pay per batch. Without it a request waits although a replica is idle only if waiting saves more time than
	// it costs.
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

// Queue holds the requests of one deployment by ascending deadline and decides when they run as a batch, and on which replica. Decide and
// PredictFinish rely on that order: what is late comes first. It is not safe for concurrent use.
type Queue struct {
	config Config
	tree   tree
	// waiting is the number of requests that waited for another one at the last call of Decide, and waitingSince the time since when.
	waiting      int
	waitingSince time.Time
}

// New returns an empty batching queue. Errors are *share.FieldError.
func New(c Config) (*Queue, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Queue{config: c}, nil
}

// Len returns the number of queued requests.
func (q *Queue) Len() int { return q.tree.len() }

// Replica is one copy of the deployment that serves the queue, as of one moment.
type Replica struct {
	ID       int
	Busy     bool                          // cannot run another batch now
	FreeAt   time.Time                     // when a busy replica is expected to become free; if that is past, it is expected to at once
	MaxBatch int                           // Config.MaxBatch if 0
	Latency  func(batch int) time.Duration // Config.Latency if nil; the mean if latencies vary
	Spread   float64                       // a high quantile of latencies, as a multiple of Latency; 1 if less
}

// Load is the state of a deployment's replicas and its expected arrival rate, on which a batching decision depends.
type Load struct {
	Replicas []Replica // in the order in which they are preferred, such as hot ones first
	Rate     float64   // expected arrivals a second; 0 if unknown
}

func (q *Queue) maxBatch(r *Replica) int {
	if r.MaxBatch > 0 {
		return r.MaxBatch
	}
	return q.config.MaxBatch
}

func (q *Queue) latency(r *Replica, batch int) time.Duration {
	if r.Latency != nil {
		return r.Latency(batch)
	}
	return q.config.Latency(batch)
}

// longest returns how long a batch with the first waiting request is expected to take at most. If nothing else waits, that is its mean: the request may
// be late rather than leave a replica idle.
func (q *Queue) longest(r *Replica, batch int) time.Duration {
	takes := q.latency(r, batch)
	if q.Len() == 1 {
		return takes
	}
	return r.atMost(takes)
}

// atMost returns how long what takes the given time on average takes at most.
func (r *Replica) atMost(takes time.Duration) time.Duration {
	if r.Spread <= 1 {
		return takes
	}
	return time.Duration(r.Spread * float64(takes))
}

// Add queues a request, or refuses it and returns false. A request is refused if it is predicted to miss its deadline even in a batch of
// its own on the fastest replica, after the requests with earlier deadlines have run in full batches on all replicas. Those count with their mean
// latency, since their sum is close to that of the means, and the request itself with a high quantile. Requests need different IDs.
func (q *Queue) Add(r Request, now time.Time, load Load) bool {
	if q.PredictFinish(r, now, load).Add(q.config.Margin).After(r.Deadline) {
		return false
	}
	q.tree.add(r)
	return true
}

// PredictFinish returns the earliest time at which a request, queued or not, is predicted to be answered: see Add.
func (q *Queue) PredictFinish(r Request, now time.Time, load Load) time.Time {
	replicas := load.Replicas
	if len(replicas) == 0 {
		replicas = []Replica{{}}
	}
	wait := q.predictWait(q.tree.before(&r), now, replicas)
	latency, longest := q.fastest(replicas)
	if wait == 0 && q.Len() == 0 {
		return now.Add(latency)
	}
	return now.Add(wait + longest)
}

// Remove removes a queued request, for example because its client has gone, and reports whether it was queued. r needs the Deadline and the
// ID with which the request was added.
func (q *Queue) Remove(r Request) bool { return q.tree.remove(&r) }

// fastest returns the shortest latency of a single request, and the shortest time that one is expected to take at most.
func (q *Queue) fastest(replicas []Replica) (latency, longest time.Duration) {
	latency, longest = math.MaxInt64, math.MaxInt64
	for i := range replicas {
		own := q.latency(&replicas[i], 1)
		latency, longest = min(latency, own), min(longest, replicas[i].atMost(own))
	}
	return latency, longest
}

// predictWait returns the predicted time until a request with n queued requests before it starts, if these run in full batches on
// all replicas: the earliest time at which the replicas have begun more than n requests, found by bisection.
func (q *Queue) predictWait(n int, now time.Time, replicas []Replica) time.Duration {
	low, high := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for i := range replicas {
		r := &replicas[i]
		wait, batch := r.wait(now), q.maxBatch(r)
		low = min(low, wait)
		high = min(high, wait+time.Duration(n/batch)*q.latency(r, batch))
	}
	for low < high {
		middle := low + (high-low)/2
		if q.begunBy(middle, now, replicas) > n {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

// begunBy returns how many requests have begun after the given wait, if all batches are full.
func (q *Queue) begunBy(wait time.Duration, now time.Time, replicas []Replica) int {
	begun := 0
	for i := range replicas {
		r := &replicas[i]
		if own, batch := r.wait(now), q.maxBatch(r); wait >= own {
			begun += batch * int((wait-own)/max(q.latency(r, batch), 1)+1)
		}
	}
	return begun
}

// wait returns how long the replica will be busy.
func (r *Replica) wait(now time.Time) time.Duration {
	if !r.Busy {
		return 0
	}
	return max(0, r.FreeAt.Sub(now))
}

// Decision is what a batching queue decides at one moment: the batch to run, the requests to refuse, and when to decide again. The
// requests of both lists have been removed from the queue.
type Decision struct {
	Fire    []Request // send as one batch, ordered by deadline, to Replica, and call Decide again
	Replica int       // ID of an idle replica, if Fire is not empty
	Refused []Request // will miss their deadlines in any case: answer them at once, without GPU time
	Wake    time.Time // when to call Decide again if nothing happens before; zero if there is nothing to do until an event
}

// Decide refuses the requests that cannot meet their deadlines. It then returns a batch if a replica is idle and the batch is full, its first
// request must start now, or waiting for another request costs more time than it saves. The batch goes to the first idle replica that answers the
// first request in time. If there is none, it goes at once to the first idle replica that answers later requests in time; meanwhile the first
// requests wait for a faster replica. Call Decide after an arrival, when a replica becomes idle, and at the Wake time of the last Decision.
func (q *Queue) Decide(now time.Time, load Load) Decision {
	replicas := load.Replicas
	if len(replicas) == 0 {
		replicas = []Replica{{Busy: true}}
	}
	latency, longest := q.fastest(replicas)
	fastest := func(int) time.Duration {
		if q.Len() == 1 {
			return latency
		}
		return longest
	}
	d := Decision{Refused: q.removeLate(nil, now, fastest, 1)}
	if q.Len() == 0 {
		return d
	}
	idle := q.chooseIdle(now, replicas)
	if idle == nil {
		if slow, size := q.chooseForLater(now, replicas); slow != nil {
			q.waiting = 0
			d.Replica = slow.ID
			bound := q.startingNow(now, slow, size)
			for range size {
				r := *q.tree.from(&bound)
				q.tree.remove(&r)
				d.Fire = append(d.Fire, r)
			}
			return d
		}
		d.Wake = q.latestStart(fastest(1)).Add(time.Nanosecond) // if the head is still queued then, it is refused
		return d
	}
	most := q.maxBatch(idle)
	atMost := func(batch int) time.Duration { return q.longest(idle, batch) }
	if q.Len() > most {
		d.Refused = q.removeLate(d.Refused, now, atMost, most)
	}
	if q.Len() == 0 {
		return d
	}
	size := min(q.Len(), most)
	for size > 1 && q.latestStart(atMost(size)).Before(now) {
		size--
	}
	if must := q.latestStart(atMost(min(q.Len()+1, most))); size < most && now.Before(must) {
		if until := q.waitUntil(now, must, func(batch int) time.Duration { return q.latency(idle, batch) }, load.Rate); now.Before(until) {
			d.Wake = until
			return d
		}
	}
	q.waiting = 0
	d.Replica = idle.ID
	for range size {
		d.Fire = append(d.Fire, q.tree.pop())
	}
	return d
}

// chooseIdle returns the first idle replica that answers the first queued request in time, or nil.
func (q *Queue) chooseIdle(now time.Time, replicas []Replica) *Replica {
	for i := range replicas {
		if r := &replicas[i]; !r.Busy && !q.latestStart(q.longest(r, 1)).Before(now) {
			return r
		}
	}
	return nil
}

// chooseForLater returns the first idle replica that answers any queued request in time and the size of the largest batch that it answers in time, or nil.
// A replica too slow for the most urgent requests must serve other ones: under overload the most urgent requests have only just as much time left as the
// fastest replica takes.
func (q *Queue) chooseForLater(now time.Time, replicas []Replica) (*Replica, int) {
	for i := range replicas {
		r := &replicas[i]
		if r.Busy || i > 0 && !replicas[i-1].Busy && replicas[i-1].ID == r.ID { // a replica that takes several batches at once is listed several times
			continue
		}
		// Larger batches take longer, so fewer requests have enough time for them.
		size := sort.Search(min(q.Len(), q.maxBatch(r)), func(n int) bool {
			bound := q.startingNow(now, r, n+1)
			return q.Len()-q.tree.before(&bound) < n+1
		})
		if size > 0 {
			return r, size
		}
	}
	return nil, 0
}

// startingNow returns a request that sorts before exactly those requests that r answers in time in a batch of the given size started now.
func (q *Queue) startingNow(now time.Time, r *Replica, size int) Request {
	return Request{Deadline: now.Add(q.longest(r, size) + q.config.Margin)}
}

// removeLate removes the requests at the head of the queue that would miss their deadlines if they started now in a batch of the given size,
// and appends them to refused. The size is normally one. If more requests wait than fit a full batch, the caller passes the size of a full
// one, because small batches for urgent requests would delay the others more.
func (q *Queue) removeLate(refused []Request, now time.Time, latency func(int) time.Duration, batch int) []Request {
	for q.Len() > 0 && q.latestStart(latency(min(batch, q.Len()))).Before(now) {
		refused = append(refused, q.tree.pop())
	}
	return refused
}

// latestStart returns the latest time at which a batch that takes the given time can start and meet the deadline of the first queued
// request.
func (q *Queue) latestStart(takes time.Duration) time.Time {
	return q.tree.first().Deadline.Add(-takes - q.config.Margin)
}

// waitUntil returns the time until which the queued requests wait for another one: at the latest must, when the first of them has to start, and
// now or earlier if they do not wait. They wait if the GPU time saved by not running the other request in a batch of its own is expected to
// exceed the cost of their waiting, both in request-seconds; and only until they have waited as much as that saves, because rate may belong to
// requests that no longer come.
func (q *Queue) waitUntil(now, must time.Time, latency func(int) time.Duration, rate float64) time.Time {
	if q.config.Fill {
		return must
	}
	n := q.Len()
	saved := latency(n) + latency(1) - latency(n+1)
	if rate <= 0 || float64(n)/rate >= saved.Seconds() {
		return now
	}
	if q.waiting != n {
		q.waiting, q.waitingSince = n, now
	}
	if until := q.waitingSince.Add(saved / time.Duration(n)); until.Before(must) {
		return until
	}
	return must
}
