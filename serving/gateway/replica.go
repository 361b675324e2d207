package gateway

import (
	"cmp"
	"slices"
	"time"
)

// replica is a replica with the requests that it has.
type replica struct {
	Replica
	began    []time.Time // of the requests that it has
	ends     []time.Time // when they are expected to be answered, ascending
	factor   float64     // measured over profiled latency; 0: not measured
	learned  time.Duration
	avoid    time.Time // gets no requests until then, since it has failed
	failures int       // in a row
	drained  chan struct{}
}

// setReplicas replaces the replicas. What is known of those that stay is kept.
func (f *function) setReplicas(replicas []Replica) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := map[string]*replica{}
	for _, r := range f.replicas {
		known[r.ID] = r
	}
	f.replicas = nil
	listed := map[string]bool{}
	for _, r := range replicas {
		listed[r.ID] = true
		if f.draining[r.ID] != nil {
			continue
		}
		r.Credits = max(r.Credits, 1)
		old := known[r.ID]
		if old == nil || old.Address != r.Address {
			old = &replica{Replica: r}
		}
		old.Residency, old.Credits, old.Latency = r.Residency, r.Credits, r.Latency // ID and Address are read without the lock
		f.replicas = append(f.replicas, old)
	}
	for id := range f.draining {
		if !listed[id] {
			delete(f.draining, id)
		}
	}
	slices.SortStableFunc(f.replicas, func(a, b *replica) int {
		return cmp.Or(cmp.Compare(a.Residency, b.Residency), cmp.Compare(a.Latency, b.Latency), cmp.Compare(a.ID, b.ID))
	})
	if len(f.replicas) > 0 {
		f.releaseHeld()
	}
	f.dispatch()
}

// releaseHeld moves the requests that were held into the queue. They have missed the objective in any case, so unless a client has given its
// own deadline, all of them are served, after those that can still be in time.
func (f *function) releaseHeld() {
	now := time.Now()
	for _, it := range f.held {
		it.held.Stop()
		if !it.explicit {
			it.request.Deadline = now.Add(f.config.Timeout)
		}
		f.add(it)
	}
	f.held = nil
}

// drain takes a replica out of the list and returns a channel that is closed when it has no requests.
func (f *function) drain(id string) <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.draining[id]; r != nil {
		return r.drained
	}
	at := slices.IndexFunc(f.replicas, func(r *replica) bool { return r.ID == id })
	if at < 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	r := f.replicas[at]
	f.replicas = slices.Delete(slices.Clone(f.replicas), at, at+1)
	f.draining[id] = r
	r.drained = make(chan struct{})
	if len(r.ends) == 0 {
		close(r.drained)
	}
	return r.drained
}

// begin counts a request that the replica gets.
func (r *replica) begin(now time.Time) {
	r.began = append(r.began, now)
	r.ends = append(r.ends, now.Add(r.latency(1)))
	slices.SortFunc(r.ends, time.Time.Compare)
}

// end counts the end of a request that began at a time.
func (r *replica) end(began, now time.Time) {
	if at := slices.IndexFunc(r.began, began.Equal); at >= 0 {
		r.began = slices.Delete(r.began, at, at+1)
	}
	r.ends = r.ends[:0]
	for _, b := range r.began {
		r.ends = append(r.ends, b.Add(r.latency(1)))
	}
	if r.drained != nil && len(r.began) == 0 {
		select {
		case <-r.drained:
		default:
			close(r.drained)
		}
	}
}

// Bounds of the factor by which profiled latencies are corrected, and the weights of a measurement above and below it: a replica that has
// become slow is noticed within few requests, one quick answer means little.
const (
	minFactor, maxFactor = 0.5, 4
	riseWeight           = 0.3
	fallWeight           = 0.03
)

// latency returns the latency to expect of a request.
func (r *replica) latency(int) time.Duration {
	if r.Latency == 0 {
		return r.learned
	}
	return time.Duration(float64(r.Latency) * cmp.Or(r.factor, 1))
}

// measured corrects the expected latency by that of one request.
func (r *replica) measured(took time.Duration) {
	r.failures = 0
	if r.Latency == 0 {
		r.learned += time.Duration(weight(took > r.learned) * float64(took-r.learned))
		return
	}
	factor := cmp.Or(r.factor, 1)
	part := float64(took) / float64(r.Latency)
	r.factor = min(max(factor+weight(part > factor)*(part-factor), minFactor), maxFactor)
}

func weight(rises bool) float64 {
	if rises {
		return riseWeight
	}
	return fallWeight
}

// Shortest and longest time for which a replica that has failed gets no requests.
const (
	minAvoid = 100 * time.Millisecond
	maxAvoid = 10 * time.Second
)

func (r *replica) avoidFrom(now time.Time) {
	r.avoid = now.Add(min(minAvoid<<min(r.failures, 10), maxAvoid))
	r.failures++
}
