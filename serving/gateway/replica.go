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
	flights  []*flight       // the requests and batches that it has
	ends     []time.Time     // memory for predictEnds
	factor   float64         // ratio of measured to profiled latency; 0: not measured
	learned  batchLatency    // latencies measured where there is no profile
	occupied time.Duration   // how long a request keeps its credit, measured; only with the protocol OpenAI
	avoid    time.Time       // it has failed and gets no requests until then
	down     bool            // it has failed because it accepts no connections or answers nothing; else a request may have been the cause
	failures int             // consecutive failures
	others   bool            // another gateway owns it and sends it requests
	drains   []chan struct{} // each is closed when the replica has no requests
}

// flight is a request or batch that a replica has.
type flight struct {
	began  time.Time
	size   int  // requests
	stream bool // it lasts as long as its client likes, which says nothing about the latency of requests
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
func (r *replica) begin(now time.Time, size int) *flight {
	flown := &flight{began: now, size: size}
	r.flights = append(r.flights, flown)
	return flown
}

// predictEnds returns when the replica is expected to have answered each of its requests, in ascending order. The next call reuses the memory.
func (r *replica) predictEnds() []time.Time {
	r.ends = r.ends[:0]
	for _, f := range r.flights {
		r.ends = append(r.ends, f.began.Add(max(r.latency(f.size), r.occupied)))
	}
	slices.SortFunc(r.ends, time.Time.Compare)
	return r.ends
}

// end counts the end of a request or batch of the replica.
func (r *replica) end(flown *flight) {
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

// Bounds of the factor by which profiled latencies are corrected.
const minFactor, maxFactor = 0.5, 4

// latency returns the expected latency of a batch.
func (r *replica) latency(batch int) time.Duration {
	profiled := r.profiled(batch)
	if profiled == 0 {
		return r.learned.of(batch)
	}
	return time.Duration(float64(profiled) * cmp.Or(r.factor, 1))
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

// measured corrects the expected latency by the measured latency of one batch.
func (r *replica) measured(batch int, took time.Duration) {
	profiled := r.profiled(batch)
	if profiled == 0 {
		r.learned.add(batch, took)
		return
	}
	r.factor = min(max(float64(batching.Expect(r.latency(batch), took))/float64(profiled), minFactor), maxFactor)
}

// occupy corrects how long a request is expected to keep its credit.
func (r *replica) occupy(took time.Duration) { r.occupied = batching.Expect(r.occupied, took) }

// batchLatency is the measured latency of batches of 1, 2, ... requests; 0 where none was measured.
type batchLatency []time.Duration

// of returns the expected latency of a batch: the longest that was measured for a batch of at most its size or, if there is none, that of the
// smallest batch that was measured. So it never falls with the size. It is 0 if nothing was measured.
func (l batchLatency) of(batch int) time.Duration {
	var longest time.Duration
	for i, d := range l {
		if i >= batch && longest > 0 {
			break
		}
		longest = max(longest, d)
	}
	return longest
}

// forgetWeight is by which part the latencies of larger batches approach that of a smaller one that turns out to be faster. Without it, a size that
// was slow once would never be tried again.
const forgetWeight = 0.01

func (l *batchLatency) add(batch int, took time.Duration) {
	for len(*l) < batch {
		*l = append(*l, 0)
	}
	(*l)[batch-1] = batching.Expect((*l)[batch-1], took)
	for i, larger := range (*l)[batch:] {
		if larger > took {
			(*l)[batch+i] = larger - time.Duration(forgetWeight*float64(larger-took))
		}
	}
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
