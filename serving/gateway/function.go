package gateway

import (
	"cmp"
	"math"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/gshare-dev/gshare/vgpu/batching"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// function is a function with its queue and its replicas.
type function struct {
	gateway *Gateway
	name    FunctionName

	mu       sync.Mutex // guards what follows
	config   Function
	queue    *batching.Queue
	items    map[uint64]*item // in the queue
	held     []*item          // wait for the first replica, the oldest first
	replicas []*replica       // the preferred first
	draining map[string]*replica
	lastID   uint64
	bytes    share.Bytes // of bodies
	wake     *time.Timer
	retries  float64 // that the budget allows
	statistics
}

// retryBudget is the part of the requests that may be sent again after a replica has failed, and maxRetries bounds how many may be at once.
const (
	retryBudget = 0.1
	maxRetries  = 100
)

// item is one request on its way through the gateway.
type item struct {
	request  batching.Request
	arrived  time.Time
	explicit bool      // the deadline is the client's
	cold     bool      // was held
	turn     chan turn // gets one value
	held     *time.Timer
}

// turn is the end of a request's wait: a replica with a credit for it, or a refusal.
type turn struct {
	replica *replica
	began   time.Time
	refusal refusal
}

func newFunction(config Function, g *Gateway) *function {
	f := &function{gateway: g, name: config.FunctionName, config: config, items: map[uint64]*item{}, draining: map[string]*replica{}, retries: maxRetries}
	f.queue, _ = batching.New(batching.Config{MaxBatch: 1, Latency: func(int) time.Duration { return 0 }}) // always valid
	f.wake = time.AfterFunc(math.MaxInt64, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.dispatch()
	})
	return f
}

func (f *function) configure(config Function) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config = config
}

// admit counts an arrival and returns an item for it, or refuses it if it is predicted to miss its deadline, or too many wait. timeout is the
// client's; 0 if it has none.
func (f *function) admit(timeout time.Duration) (*item, refusal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.counts.Arrived++
	f.rate.add(now)
	f.retries = min(f.retries+retryBudget, maxRetries)
	f.lastID++
	it := &item{arrived: now, explicit: timeout > 0, turn: make(chan turn, 1)}
	it.request = batching.Request{ID: f.lastID, Deadline: now.Add(cmp.Or(timeout, f.config.SLO, f.config.Timeout))}
	if refused := f.check(it, now); refused.status != 0 {
		f.counts.Refused++
		return nil, refused
	}
	return it, refusal{}
}

// check returns the refusal of a request, or none.
func (f *function) check(it *item, now time.Time) refusal {
	switch {
	case len(f.replicas) == 0 && len(f.held) >= f.config.Hold.Requests:
		return refusal{http.StatusServiceUnavailable, reasonHoldFull, "no replica serves the function, and too many requests wait for one"}
	case len(f.items) >= f.config.MaxQueued:
		return refusal{http.StatusTooManyRequests, reasonQueueFull, "too many requests wait"}
	case len(f.replicas) == 0 || f.isIdle():
		return refusal{}
	case f.queue.PredictFinish(it.request, now, f.batchingLoad(now)).After(it.request.Deadline):
		return refusal{http.StatusTooManyRequests, reasonLate, "the request would miss its deadline"}
	}
	return refusal{}
}

// isIdle reports whether no request waits or is served. The next one is let in although predictions say that it will be late: it costs no
// other its time, and it measures how long requests take now.
func (f *function) isIdle() bool {
	return len(f.items) == 0 && !slices.ContainsFunc(f.replicas, func(r *replica) bool { return len(r.ends) > 0 })
}

// reserve counts the bytes of a body, and reports whether they are within the function's bound.
func (f *function) reserve(n share.Bytes) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bytes+n > f.config.MaxBytes {
		return false
	}
	f.bytes += n
	return true
}

func (f *function) release(n share.Bytes) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.bytes -= n
}

// enqueue lets an item wait for its turn.
func (f *function) enqueue(it *item) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.replicas) > 0 {
		f.add(it)
		f.dispatch()
		return
	}
	it.cold = true
	f.held = append(f.held, it)
	it.held = time.AfterFunc(f.config.Hold.For, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if at := slices.Index(f.held, it); at >= 0 {
			f.held = slices.Delete(f.held, at, at+1)
			f.refuse(it, refusal{http.StatusServiceUnavailable, reasonHoldExpired, "no replica started in time"})
		}
	})
	f.gateway.notifyWaiting(f.name)
}

// add puts an item into the queue. It was admitted already; what is too late now is refused when its turn comes.
func (f *function) add(it *item) {
	now := time.Now()
	if f.isIdle() {
		finish := f.queue.PredictFinish(it.request, now, f.batchingLoad(now))
		if finish.After(it.request.Deadline) {
			it.request.Deadline = finish
		}
	}
	if f.queue.Add(it.request, now, f.batchingLoad(now)) {
		f.items[it.request.ID] = it
		return
	}
	f.refuse(it, refusal{http.StatusTooManyRequests, reasonLate, "the request would miss its deadline"})
}

// retry lets an item whose replica has failed wait again, if the budget allows it.
func (f *function) retry(it *item) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.retries < 1 || len(f.replicas) == 0 {
		return false
	}
	f.retries--
	f.lastID++
	it.request.ID = f.lastID
	f.add(it)
	f.dispatch()
	return true
}

// cancel gives up an item whose client has gone, and reports whether it still waited.
func (f *function) cancel(it *item) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if at := slices.Index(f.held, it); at >= 0 {
		f.held = slices.Delete(f.held, at, at+1)
		it.held.Stop()
		return true
	}
	if f.items[it.request.ID] != it {
		return false
	}
	f.queue.Remove(it.request)
	delete(f.items, it.request.ID)
	return true
}

func (f *function) refuse(it *item, why refusal) {
	f.counts.Refused++
	it.turn <- turn{refusal: why}
}

func (f *function) refuseAll(why refusal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, it := range f.held {
		it.held.Stop()
		f.refuse(it, why)
	}
	for _, it := range f.items {
		f.queue.Remove(it.request)
		f.refuse(it, why)
	}
	f.held = nil
	clear(f.items)
	f.wake.Stop()
}

// dispatch gives turns to items while there are credits.
func (f *function) dispatch() {
	for {
		now := time.Now()
		d := f.queue.Decide(now, f.batchingLoad(now))
		for _, r := range d.Refused {
			f.refuse(f.take(r.ID), refusal{http.StatusGatewayTimeout, reasonLate, "the request would have missed its deadline"})
		}
		if len(d.Fire) == 0 {
			f.wakeAt(now, d.Wake)
			return
		}
		r := f.replicas[d.Replica]
		r.begin(now)
		f.take(d.Fire[0].ID).turn <- turn{replica: r, began: now}
	}
}

func (f *function) take(id uint64) *item {
	it := f.items[id]
	delete(f.items, id)
	return it
}

// wakeAt calls dispatch at a time, or before when a replica is to be tried again.
func (f *function) wakeAt(now, at time.Time) {
	if len(f.items) == 0 {
		f.wake.Stop()
		return
	}
	for _, r := range f.replicas {
		if r.avoid.After(now) && (at.IsZero() || r.avoid.Before(at)) {
			at = r.avoid
		}
	}
	if !at.IsZero() {
		f.wake.Reset(at.Sub(now))
	}
}

// batchingLoad returns the replicas as the queue sees them: each credit is one that serves a request at a time.
func (f *function) batchingLoad(now time.Time) batching.Load {
	l := batching.Load{Rate: f.rate.perSecond(now), Replicas: make([]batching.Replica, 0, len(f.replicas))}
	for i, r := range f.replicas {
		for credit := range r.Credits {
			b := batching.Replica{ID: i, Latency: r.latency}
			switch {
			case r.avoid.After(now):
				b.Busy, b.FreeAt = true, r.avoid
			case credit < len(r.ends):
				b.Busy, b.FreeAt = true, r.ends[credit]
			}
			l.Replicas = append(l.Replicas, b)
		}
	}
	return l
}

// done returns the credit of an item's replica after its answer. ok says that the server has answered without an error of its own.
func (f *function) done(it *item, r *replica, began time.Time, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	r.end(began, now)
	f.counts.Answered++
	if ok {
		r.measured(now.Sub(began))
		if !it.cold && !now.After(it.request.Deadline) {
			f.counts.InTime++
		}
		f.window.add(now, now.Sub(it.arrived))
	}
	f.dispatch()
}

// failed returns the credit of an item's replica that gave no answer. The replica is avoided for a while, unless the client has gone.
func (f *function) failed(r *replica, began time.Time, clientGone bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	r.end(began, now)
	if !clientGone {
		r.avoidFrom(now)
	}
	f.dispatch()
}

func (f *function) countGone()   { f.mu.Lock(); f.counts.Gone++; f.mu.Unlock() }
func (f *function) countFailed() { f.mu.Lock(); f.counts.Failed++; f.mu.Unlock() }

func (f *function) load() Load {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.counts
	l.Waiting, l.Replicas = len(f.items)+len(f.held), len(f.replicas)
	for _, r := range f.replicas {
		l.InFlight += len(r.ends)
	}
	for _, r := range f.draining {
		l.InFlight += len(r.ends)
	}
	l.P50, l.P99 = f.window.quantiles(time.Now())
	return l
}
