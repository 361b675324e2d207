package gateway

import (
	"cmp"
	"errors"
	"maps"
	"math"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/gshare-dev/gshare/serving/gateway/http1"
	"github.com/gshare-dev/gshare/serving/rules/batching"
)

// function is a function of the gateway with its queue and its replicas. It has many methods because all the ways in which requests come, wait and
// leave need its mutex.
type function struct {
	gateway *Gateway
	name    FunctionName

	mu     sync.Mutex // guards what follows
	config Function
	queue  *batching.Queue
	items  map[uint64]*item // in the queue
	cold
	servers
	memory
	lastID  uint64
	wake    *time.Timer
	retries float64 // how many the retry budget allows now
	observed

	statistics // has its own mutex
	place      place
}

// cold is the state of a function that has no replicas.
type cold struct {
	held    []*item  // waiting for the first replica, oldest first
	backOff *backOff // set while no replica is started for the function; else nil
}

// retryBudget is the part of the requests that may be sent again after a replica has failed: each request adds it to the budget. maxRetries bounds
// how much the budget can accumulate.
const (
	retryBudget = 0.1
	maxRetries  = 100
)

func newFunction(config Function, g *Gateway) *function {
	f := &function{gateway: g, name: config.FunctionName, config: config, items: map[uint64]*item{}, retries: maxRetries}
	f.place.of = f
	f.bodies.within, f.answers.within = g.bodiesOf(config.Namespace), g.bodiesOf(config.Namespace)
	f.draining, f.left = map[string]*replica{}, map[string]*replica{}
	f.queue, _ = batching.New(batching.Config{MaxBatch: 1, Latency: func(int) time.Duration { return 0 }}) // cannot fail: the configuration is valid
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

func (f *function) settings() Function {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.config
}

// admit counts a request that has arrived completely and lets it wait for its turn. It refuses the request if it is predicted to miss its deadline,
// or if too many requests of the function wait. start is when the first gateway got the request, spent how long other gateways have had the complete
// request.
func (f *function) admit(p *part, d demands, start time.Time, spent time.Duration) (*item, refusal) {
	queue, settings := f.place.lock()
	defer queue.mu.Unlock()
	return queue.let(f, &settings, p, d, start, spent)
}

// let is admit for a request of the function of, which has these settings, in f's queue. The caller holds f's mutex.
func (f *function) let(of *function, settings *Function, p *part, d demands, start time.Time, spent time.Duration) (*item, refusal) {
	now := time.Now()
	f.rate.add(now)
	f.retries = min(f.retries+retryBudget, maxRetries)
	f.lastID++
	it := &item{of: of, asked: d, timeout: settings.Timeout, holdFor: settings.Hold.For, perToken: settings.TimePerToken, arrived: now, turn: make(chan turn, 1), part: p}
	it.queue.Store(f)
	deadline := start.Add(d.timeout)
	if !it.explicit() {
		deadline = now.Add(cmp.Or(settings.SLO, settings.Timeout))
		if settings.Hold.InTime { // without it, requests whose gateway has failed get the full time again, to be served late rather than not at all
			deadline = deadline.Add(-spent)
		}
	}
	it.due, it.request = deadline, batching.Request{ID: f.lastID, Deadline: deadline}
	refused := f.check(it, settings, now)
	of.count(func(s *statistics) {
		s.receive()
		if refused.status != 0 {
			s.counts.Refused++
		} else {
			s.counts.Waiting++
		}
	})
	if refused.status != 0 {
		return nil, refused
	}
	f.enqueue(it, now)
	return it, refusal{}
}

// check returns the refusal of a request of a function with these settings in f's queue, or none.
func (f *function) check(it *item, settings *Function, now time.Time) refusal {
	var waiting int // of the function alone, so that none fills the queue for the others
	it.of.count(func(s *statistics) { waiting = s.counts.Waiting })
	switch {
	case len(f.replicas) == 0 && f.backOff != nil && f.backOff.outlasts(it):
		return f.backOff.refusal()
	case len(f.replicas) == 0 && waiting >= settings.Hold.Requests:
		return newRefusal(causeHoldFull, "no replica serves the function, and too many requests wait for one")
	case waiting >= settings.MaxQueued:
		return newRefusal(causeQueueFull, "too many requests wait")
	case len(f.replicas) == 0 || f.isIdleFor(it, now) || len(f.items) == 0 && firstIdle(f.replicas, it, now) != nil:
		return refusal{}
	case f.queue.PredictFinish(it.request, now, f.batchingLoad(now)).After(it.request.Deadline):
		return newRefusal(causePredictedLate, "the request would miss its deadline")
	}
	return refusal{}
}

// isIdleFor reports whether no request waits or is being served, so that the item is let in even if it is predicted to be late: it takes no time from
// others, and it measures how long requests take at present. There is one exception. If such a request had a deadline of its client, the client may
// have given it up, so that nothing is measured, and the replica may still be busy with it. Until its answer would have come, no other request with a
// client's deadline is let in.
func (f *function) isIdleFor(it *item, now time.Time) bool {
	return !(it.explicit() && now.Before(f.hopeless)) && len(f.items) == 0 && !slices.ContainsFunc(f.replicas, func(r *replica) bool { return len(r.flights) > 0 })
}

// enqueue lets an item wait for its turn.
func (f *function) enqueue(it *item, now time.Time) {
	if len(f.items) == 0 && f.config.MaxBatch == 1 {
		if r := firstIdle(f.replicas, it, now); r != nil { // as the queue would decide
			it.of.count((*statistics).fly)
			it.turn <- turn{replica: r, flight: r.begin(now, it)}
			return
		}
	}
	if len(f.replicas) > 0 {
		f.add(it)
		f.dispatch()
		return
	}
	f.hold(it)
}

// hold lets an item wait for the function's first replica.
func (f *function) hold(it *item) {
	limit, why := it.holdFor, newRefusal(causeHoldExpired, "no replica started in time")
	if it.cold = !f.config.Hold.InTime; !it.cold {
		it.request.Deadline = it.due // add may have set a later one, as no other request needed the replica
		limit, why = time.Until(it.due), newRefusal(causeLate, "the function had no turn in time")
	}
	f.held = append(f.held, it)
	it.held = time.AfterFunc(limit, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if at := slices.Index(f.held, it); at >= 0 {
			f.held = slices.Delete(f.held, at, at+1)
			it.refuse(why)
		}
	})
	f.gateway.notifyWaiting(f.name)
}

// firstIdle returns the first replica that has a free credit and is expected to answer the item in time, or nil.
func firstIdle(replicas []*replica, it *item, now time.Time) *replica {
	for _, r := range replicas {
		if len(r.flights) < r.Credits && !r.avoid.After(now) && !now.Add(r.latency(1)).After(it.request.Deadline) {
			return r
		}
	}
	return nil
}

// add puts an item that has been admitted into the queue. If it is too late by now, it is refused when its turn comes.
func (f *function) add(it *item) {
	if len(f.replicas) == 0 && f.backOff != nil && f.backOff.outlasts(it) { // the item waits again after a replica had it
		it.refuse(f.backOff.refusal())
		return
	}
	if len(f.replicas) == 0 && f.config.Hold.InTime {
		f.hold(it)
		return
	}
	now := time.Now()
	if f.isIdleFor(it, now) {
		finish := f.queue.PredictFinish(it.request, now, f.batchingLoad(now))
		if finish.After(it.request.Deadline) {
			if it.explicit() {
				f.hopeless = finish
			}
			it.request.Deadline = finish.Add(finish.Sub(now)) // later than predicted, since time passes until the queue decides
			if f.config.Hold.InTime {
				refuseAtDue(it)
			}
		}
	}
	if f.queue.Add(it.request, now, f.batchingLoad(now)) {
		f.items[it.request.ID] = it
		return
	}
	it.refuse(newRefusal(causePredictedLate, "the request would miss its deadline"))
}

// refuseAll ends the wait of all requests for which which returns true. The caller holds the mutex.
func (f *function) refuseAll(why refusal, which func(*item) bool) {
	f.held = slices.DeleteFunc(f.held, func(it *item) bool {
		if !which(it) {
			return false
		}
		it.held.Stop()
		it.refuse(why)
		return true
	})
	maps.DeleteFunc(f.items, func(_ uint64, it *item) bool {
		if !which(it) {
			return false
		}
		f.queue.Remove(it.request)
		it.refuse(why)
		return true
	})
	if len(f.items) == 0 {
		f.wake.Stop()
	}
}

// dispatch gives items their turns as long as there are credits. The caller holds the mutex.
func (f *function) dispatch() {
	for len(f.items) > 0 {
		now := time.Now()
		d := f.queue.Decide(now, f.batchingLoad(now))
		for _, r := range d.Refused {
			f.take(r.ID).refuse(newRefusal(causeLate, "the request would have missed its deadline"))
		}
		if len(d.Fire) == 0 {
			f.wakeAt(now, d.Wake)
			return
		}
		items := make([]*item, len(d.Fire))
		for i, r := range d.Fire {
			items[i] = f.take(r.ID)
		}
		f.send(f.replicas[d.Replica], now, items)
	}
}

// send gives a replica the first item and those that can be batched with it. The others go back into the queue.
func (f *function) send(r *replica, now time.Time, items []*item) {
	chosen, others := together(items, f.config.MaxBatch)
	flown := r.begin(now, chosen...)
	for _, it := range chosen {
		it.of.count((*statistics).fly)
	}
	if len(chosen) > 1 {
		sendBatch(f, r, flown, chosen)
	} else {
		if f.config.MaxBatch > 1 {
			f.measure(func(m *metrics) { m.batched(f.name, 1) })
		}
		chosen[0].turn <- turn{replica: r, flight: flown}
	}
	for _, it := range others {
		f.add(it)
	}
}

func (f *function) take(id uint64) *item {
	it := f.items[id]
	delete(f.items, id)
	return it
}

// wakeAt arranges for dispatch to be called at a time, or earlier if a replica that is being avoided may be tried again before then.
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

// batchingLoad returns the replicas as the queue sees them: each credit counts as a replica that serves one request at a time. Free credits of a
// replica beyond the number of waiting requests and one more change no decision, and are left out: there can be millions. The next call reuses the
// memory.
func (f *function) batchingLoad(now time.Time) batching.Load {
	l := batching.Load{Rate: f.rate.perSecond(now), Replicas: f.credits[:0]}
	for i, r := range f.replicas {
		avoided := f.isAvoided(r, now)
		latency, ends, spread := r.latency, r.predictEnds(now), r.spread(f.config.SLO) // once per replica, since a method value allocates
		for credit := range min(r.Credits, len(ends)+f.queue.Len()+1) {
			b := batching.Replica{ID: i, MaxBatch: f.config.MaxBatch, Latency: latency, Spread: spread}
			switch {
			case avoided:
				b.Busy, b.FreeAt = true, r.avoid
			case credit < len(ends):
				b.Busy, b.FreeAt = true, ends[credit]
			}
			l.Replicas = append(l.Replicas, b)
		}
	}
	f.credits = l.Replicas
	return l
}

// begun learns from when a replica with the protocol OpenAI has begun to answer: long before the end of a stream, so that others are not let in meanwhile
// that will be late.
func (f *function) begun(r *replica, flown *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.measured(flown.size, time.Since(flown.began))
	f.dispatch()
}

// done returns the credit of a replica that has answered, and counts the answer for each item. ok is false if the answer is an error of the server;
// tokens has when it began.
func (f *function) done(r *replica, flown *flight, tokens tokenTimes, ok bool, items ...*item) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, first := time.Now(), tokens.first
	if f.config.Protocol != OpenAI && !flown.stream {
		first = now
	}
	if ok && !flown.stream {
		f.hopeless, r.failures = time.Time{}, 0
		if f.config.Protocol == OpenAI {
			r.occupied.Add(1, now.Sub(flown.began), len(r.flights))
		} else {
			r.measured(flown.size, now.Sub(flown.began))
		}
	}
	r.end(flown, now)
	for _, it := range stayed(items) {
		it.batch = nil
		it.of.count(func(s *statistics) {
			s.counts.InFlight--
			s.counts.Answered++
			if !ok {
				return
			}
			if !it.cold && !first.After(it.due) && (it.perToken == 0 || tokens.mean() <= it.perToken) {
				s.counts.InTime++
			}
			s.window.add(now, first.Sub(it.arrived))
		})
	}
	f.dispatch()
}

// blame says what the failure of a request says about its replica.
type blame int

const (
	none   blame = iota // nothing
	broken              // it broke off, or sent what is no answer: because of the request or not
	down                // it accepts no connections, or answers nothing
)

// isUnreachable reports whether a request was not sent, as no connection could be opened.
func isUnreachable(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) && network.Op == "dial"
}

// isUnsent reports whether no server can have begun to serve a request, according to the error of its transport.
func isUnsent(err error) bool {
	var stream http2.StreamError
	return isUnreachable(err) || errors.Is(err, http1.ErrUnsent) || errors.As(err, &stream) && stream.Code == http2.ErrCodeRefusedStream
}

// blameFor returns the blame for an error of a transport.
func blameFor(err error) blame {
	if isUnreachable(err) {
		return down
	}
	return broken
}

// failed returns the credit of a replica that gave no answer. If it is to blame, the replica gets no requests for a while.
func (f *function) failed(r *replica, flown *flight, why blame) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.end(flown, time.Now())
	if why != none {
		r.avoidFrom(time.Now(), why == down)
	}
	f.dispatch()
}
