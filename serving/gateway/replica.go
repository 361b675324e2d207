package gateway

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/batching"
	"github.com/gshare-dev/gshare/serving/rules/pipeline/routing"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// replica is a replica of a function with the requests that it has.
type replica struct {
	Replica
	flights      []*flight   // the requests and batches that it has
	ends         []time.Time // what predictEnds returned, until predictAgain
	predictAgain time.Time
	predicted    batching.Ends   // memory for predictEnds
	learned      batching.Times  // of batches or, with a profile, of multiples of what that says
	occupied     batching.Times  // how long requests keep their credits; only with the protocol OpenAI, else as learned
	streams      batching.Times  // how long streams keep their credits
	avoid        time.Time       // it has failed and gets no requests until then
	down         bool            // it has failed because it accepts no connections or answers nothing; else a request may have been the cause
	failures     int             // consecutive failures
	others       bool            // another gateway owns it and sends it requests
	drains       []chan struct{} // each is closed when the replica has no requests
}

// flight is a request or batch that a replica has.
type flight struct {
	began  time.Time
	size   int  // requests
	stream bool // see demands
}

// servers are the replicas of a function.
type servers struct {
	all      []*replica         // those that are not draining, preferred ones first
	replicas []*replica         // those of them that get requests from this gateway
	credits  []batching.Replica // memory for batchingLoad
	draining map[string]*replica
	left     map[string]*replica    // those that are no longer in the list; they come back as they were if they still have requests
	ready    atomic.Bool            // replicas is not empty; written with the function's mutex held
	owners   atomic.Pointer[owners] // written with the function's mutex held; nil while there are no other gateways
}

// setReplicas replaces the replicas. What is known about those that stay, or come back while they still have requests, is kept.
func (f *function) setReplicas(replicas []Replica) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.left
	maps.DeleteFunc(known, func(_ string, r *replica) bool { return len(r.flights) == 0 })
	for _, r := range f.all {
		known[r.ID] = r
	}
	f.all = nil
	listed := map[string]bool{}
	for _, r := range replicas {
		listed[r.ID] = true
		if f.draining[r.ID] != nil || r.Residency == scaling.Warm { // a parked replica gets no requests
			continue
		}
		r.Credits = max(r.Credits, 1)
		old := known[r.ID]
		if old == nil || old.Address != r.Address {
			old = &replica{Replica: r}
		}
		old.Residency, old.Credits, old.Latency, old.BatchLatency = r.Residency, r.Credits, r.Latency, r.BatchLatency // ID and Address are read without the lock
		f.all = append(f.all, old)
	}
	for id, r := range f.draining {
		if !listed[id] {
			delete(f.draining, id)
			known[id] = r
		}
	}
	for _, r := range f.all {
		delete(known, r.ID)
	}
	slices.SortStableFunc(f.all, func(a, b *replica) int {
		return cmp.Or(routing.Rank{Residency: a.Residency, Latency: a.Latency}.Compare(routing.Rank{Residency: b.Residency, Latency: b.Latency}), cmp.Compare(a.ID, b.ID))
	})
	f.share(f.name.String(), f.gateway.view())
	if len(f.replicas) > 0 {
		f.releaseHeld()
	}
	f.holdAll()
	f.dispatch()
}

// releaseHeld moves the requests that were held into the queue. They have missed the objective in any case. So all of them are served, after those
// that can still be in time, except where the client has given a deadline of its own.
func (f *function) releaseHeld() {
	now := time.Now()
	for _, it := range f.held {
		it.held.Stop()
		if !it.explicit() && it.cold {
			it.request.Deadline = now.Add(it.timeout)
		}
		f.add(it)
	}
	f.held = nil
}

// drain removes a replica from the list and returns a channel that is closed when it has no more requests.
func (f *function) drain(id string) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.draining[id]; r != nil {
		return r.drained()
	}
	hasID := func(r *replica) bool { return r.ID == id }
	at := slices.IndexFunc(f.all, hasID)
	if at < 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	r := f.all[at]
	f.all = slices.DeleteFunc(slices.Clone(f.all), hasID)
	f.replicas = slices.DeleteFunc(slices.Clone(f.replicas), hasID)
	f.ready.Store(len(f.replicas) > 0)
	f.draining[id] = r
	f.holdAll()
	return r.drained()
}

// drained returns a channel that is closed when the replica has no requests.
func (r *replica) drained() <-chan struct{} {
	done := make(chan struct{})
	r.drains = append(r.drains, done)
	r.endDrains()
	return done
}

func (r *replica) endDrains() {
	if len(r.flights) > 0 {
		return
	}
	for _, done := range r.drains {
		close(done)
	}
	r.drains = nil
}

// begin counts a request or batch that is given to the replica.
func (r *replica) begin(now time.Time, items ...*item) *flight {
	flown := &flight{began: now, size: len(items), stream: items[0].asked.stream}
	r.flights = append(r.flights, flown)
	r.predictAgain = time.Time{}
	return flown
}

// maxSampled bounds the requests for which predictEnds looks at how long they have been running: of more, each stands for several.
const maxSampled = 16

// predictEnds returns when the replica is expected to have answered the first, the second, ... of its requests. The prediction stays until a request
// begins or ends, or a part of the time until the first end has passed. The next call reuses the memory.
func (r *replica) predictEnds(now time.Time) []time.Time {
	if len(r.flights) == 0 {
		return nil
	}
	if now.Before(r.predictAgain) {
		return r.ends
	}
	r.predicted.Reset()
	each := (len(r.flights) + maxSampled - 1) / maxSampled
	for i := 0; i < len(r.flights); i += each {
		f, count := r.flights[i], min(each, len(r.flights)-i)
		age := now.Sub(f.began)
		switch {
		case f.stream:
			r.predicted.Add(&r.streams, r.streams.Mean(1), age, count)
		case r.occupied.Mean(1) > 0:
			r.predicted.Add(&r.occupied, r.occupied.Mean(1), age, count)
		default:
			r.predicted.Add(&r.learned, r.latency(f.size), age, count)
		}
	}
	r.ends = r.predicted.AppendTo(r.ends[:0], now)
	r.predictAgain = now.Add(r.ends[0].Sub(now) / 8)
	return r.ends
}

// end counts the end of a request or batch of the replica.
func (r *replica) end(flown *flight, now time.Time) {
	r.predictAgain = time.Time{}
	if flown.stream {
		r.streams.Add(1, now.Sub(flown.began), len(r.flights))
	}
	if at := slices.Index(r.flights, flown); at >= 0 {
		r.flights = slices.Delete(r.flights, at, at+1)
	}
	r.endDrains()
}

// isAvoided reports whether the replica gets no requests because it has failed. If all replicas have, those get requests with which it may have been the
// fault of a request: else one client could keep them from all others.
func (f *function) isAvoided(r *replica, now time.Time) bool {
	return r.avoid.After(now) && (r.down || slices.ContainsFunc(f.replicas, func(r *replica) bool { return !r.avoid.After(now) }))
}

// profiledUnit stands for the profiled latency of a batch in the times of a replica with a profile: what is learned is by how much all of it is wrong.
const profiledUnit = time.Second

// Bounds of the factor by which profiled latencies are corrected. A profile has p99s, and what is learned are means.
const minFactor, maxFactor = 0.1, 4

// latency returns the expected mean latency of a batch.
func (r *replica) latency(batch int) time.Duration {
	profiled := r.profiled(batch)
	if profiled == 0 {
		return r.learned.Mean(batch)
	}
	factor := 1.0
	if learned := r.learned.Mean(1); learned > 0 {
		factor = min(max(float64(learned)/float64(profiledUnit), minFactor), maxFactor)
	}
	return time.Duration(float64(profiled) * factor)
}

// missed is the part of the requests that may take longer than a request is expected to take at most. It is what overload costs: then all requests begin
// just in time.
const missed = 0.05

// spread returns how long a request takes at most, of those that can be answered within the objective, as a multiple of the mean.
func (r *replica) spread(objective time.Duration) float64 {
	return r.learned.Longest(r.latency(1), missed, objective)
}

// profiled returns the latency of a batch according to the profile, or 0 if the profile does not have it.
func (r *replica) profiled(batch int) time.Duration {
	switch {
	case r.BatchLatency != nil:
		return r.BatchLatency(batch)
	case batch == 1:
		return r.Latency
	}
	return 0
}

// measured learns from the latency of one batch.
func (r *replica) measured(batch int, took time.Duration) {
	if profiled := r.profiled(batch); profiled > 0 {
		if r.learned.Mean(1) == 0 {
			r.learned.Add(1, profiledUnit, 1)
		}
		batch, took = 1, time.Duration(float64(took)/float64(profiled)*float64(profiledUnit))
	}
	r.learned.Add(batch, took, len(r.flights))
}

// Shortest and longest time for which a failed replica gets no requests.
const (
	minAvoid = 100 * time.Millisecond
	maxAvoid = 10 * time.Second
)

func (r *replica) avoidFrom(now time.Time, down bool) {
	r.down = down
	r.avoid = now.Add(min(minAvoid<<min(r.failures, 10), maxAvoid))
	r.failures++
}
