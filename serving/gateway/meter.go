package gateway

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// statistics is what is counted and measured of the requests of a function, whatever function's queue they wait in. It has its own mutex, which is
// locked after those of functions.
type statistics struct {
	mu     sync.Mutex
	counts Load // without Replicas and latencies
	window latencyWindow
}

// count changes the statistics.
func (s *statistics) count(change func(*statistics)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// observed is what is known of the requests that come to a queue and of its replicas. It is guarded by the function's mutex.
type observed struct {
	speaksGRPC bool      // a replica has answered a call
	rate       rateMeter // of arrivals
	hopeless   time.Time // when the answer would have come to the last request that was let in alone although its client may not wait for it
}

// reject counts a request that ends before it is received: it is no load. counter is that of its end.
func (s *statistics) reject(counter *uint64) {
	s.counts.Arrived++
	*counter++
	if counter == &s.counts.Refused {
		s.counts.Invalid++
	}
}

// receive counts a request that has come whole.
func (s *statistics) receive() {
	s.counts.Arrived++
	s.counts.Received++
}

// fly counts a request that has waited and that a replica gets.
func (s *statistics) fly() {
	s.counts.Waiting--
	s.counts.InFlight++
}

// land counts a request that a replica had and that waits again.
func (s *statistics) land() {
	s.counts.InFlight--
	s.counts.Waiting++
}

// finish counts the end of a request that a replica had and did not answer.
func (s *statistics) finish(counter *uint64) {
	s.counts.InFlight--
	*counter++
}

// memory counts the bodies that a function has in the gateway.
type memory struct {
	bodies  bodies // of requests
	answers bodies // to batches
}

// bodies counts the bytes of the bodies that are in memory.
type bodies struct {
	within *bodies     // which counts them, too, up to its bound; nil if none does
	bound  share.Bytes // of what is within

	mu    sync.Mutex
	bytes share.Bytes
}

// reserve counts n bytes more, unless there would be more than the bound, and reports whether it has.
func (b *bodies) reserve(n, most share.Bytes) bool {
	if !b.add(n, most) {
		return false
	}
	if b.within != nil && !b.within.reserve(n, b.within.bound) {
		b.add(-n, most)
		return false
	}
	return true
}

func (b *bodies) add(n, most share.Bytes) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n > 0 && b.bytes+n > most {
		return false
	}
	b.bytes += n
	return true
}

func (b *bodies) release(n share.Bytes) {
	for ; b != nil; b = b.within {
		b.add(-n, 0)
	}
}

// Bounds of the bodies of requests, and of the answers to batches, that are in memory at once: of the functions of a namespace, and of all. The pods of
// gateways have twice as much memory. Who can have functions in one namespace only cannot use it up for others.
const (
	maxNamespaceBodies = 512 * share.MiB
	maxAllBodies       = 1024 * share.MiB
)

// bodiesOf returns what counts the bodies of the functions of a namespace. Those of namespaces without functions are forgotten when they have none. The
// caller holds the gateway's mutex.
func (g *Gateway) bodiesOf(namespace string) *bodies {
	b := g.namespaces[namespace]
	if b == nil {
		b = &bodies{within: &g.allBodies, bound: maxNamespaceBodies}
		g.namespaces[namespace] = b
	}
	return b
}

// forgetBodies forgets what counts the bodies of a namespace that has no functions and no bodies any more. The caller holds the gateway's mutex.
func (g *Gateway) forgetBodies() {
	used := map[string]bool{}
	for name := range g.functions {
		used[name.Namespace] = true
	}
	maps.DeleteFunc(g.namespaces, func(namespace string, b *bodies) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return !used[namespace] && b.bytes == 0
	})
}

// room is a reservation that several share. The last one releases it.
type room struct {
	reservation
	users atomic.Int32
}

func (r *room) release() {
	if r != nil && r.users.Add(-1) == 0 {
		r.reservation.release()
	}
}

// reservation is a part of what bodies counts. The zero value is none.
type reservation struct {
	of    *bodies
	bytes share.Bytes
}

// release ends it, if it has not ended yet.
func (r *reservation) release() {
	if r.of != nil {
		r.of.release(r.bytes)
	}
	*r = reservation{}
}

// rateMeter estimates the rate of arrivals: an average in which a second counts for a third.
type rateMeter struct {
	second time.Time // that is counted
	count  float64
	rate   float64 // until that second
}

const newestWeight = 0.3

func (m *rateMeter) add(now time.Time) {
	m.advance(now)
	m.count++
}

func (m *rateMeter) advance(now time.Time) {
	if m.second.IsZero() {
		m.second = now
		return
	}
	if seconds := int(now.Sub(m.second) / time.Second); seconds > 0 {
		m.rate += newestWeight * (m.count - m.rate)
		m.rate *= math.Pow(1-newestWeight, float64(seconds-1))
		m.count = 0
		m.second = m.second.Add(time.Duration(seconds) * time.Second)
	}
}

// perSecond returns the rate. In the first second it is what has come so far.
func (m *rateMeter) perSecond(now time.Time) float64 {
	m.advance(now)
	return max(m.rate, m.count)
}

// latencyWindow holds the latencies of the last one or two half minutes.
type latencyWindow struct {
	since        time.Time // of the newer half minute
	newer, older *hdrhistogram.Histogram
}

const windowLength = 30 * time.Second

// add counts a latency, of 10 us to an hour.
func (w *latencyWindow) add(now time.Time, d time.Duration) {
	w.advance(now)
	if w.newer == nil {
		w.newer = hdrhistogram.New(1, int64(time.Hour/latencyUnit), 2)
	}
	_ = w.newer.RecordValue(min(max(int64(d/latencyUnit), 1), int64(time.Hour/latencyUnit))) // never fails within the bounds
}

const latencyUnit = 10 * time.Microsecond

func (w *latencyWindow) advance(now time.Time) {
	switch age := now.Sub(w.since); {
	case age >= 2*windowLength:
		w.newer, w.older, w.since = nil, nil, now
	case age >= windowLength:
		w.newer, w.older, w.since = nil, w.newer, w.since.Add(windowLength)
	}
}

// quantiles returns the median and the 99th percentile, or 0 if nothing was counted.
func (w *latencyWindow) quantiles(now time.Time) (p50, p99 time.Duration) {
	w.advance(now)
	if w.newer == nil && w.older == nil { // as of most functions of a large cluster, each second
		return 0, 0
	}
	all := hdrhistogram.New(1, int64(time.Hour/latencyUnit), 2)
	for _, h := range []*hdrhistogram.Histogram{w.newer, w.older} {
		if h != nil {
			all.Merge(h)
		}
	}
	return time.Duration(all.ValueAtQuantile(50)) * latencyUnit, time.Duration(all.ValueAtQuantile(99)) * latencyUnit
}
