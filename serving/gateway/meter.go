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

// statistics is what is counted and measured for the requests of a function, in whichever function's queue they wait. Its mutex may be locked while
// that of a function is held, not the other way round.
type statistics struct {
	mu      sync.Mutex
	counts  Load // without Replicas and latencies
	window  latencyWindow
	removed bool // the function, and with it its metrics
}

// count changes the statistics.
func (s *statistics) count(change func(*statistics)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// observed is what is known about the requests in a function's queue and about its replicas. It is guarded by the function's mutex.
type observed struct {
	speaksGRPC bool      // a replica has answered a gRPC call
	rate       rateMeter // of arrivals
	hopeless   time.Time // see isIdleFor: when the answer was expected to the last request that was let in alone and had a client's deadline
}

// reject counts a request that ends before it is received, so that it is no load. counter is the one for its kind of end.
func (s *statistics) reject(counter *uint64) {
	s.counts.Arrived++
	*counter++
	if counter == &s.counts.Refused {
		s.counts.Invalid++
	}
}

// receive counts a request that has arrived completely.
func (s *statistics) receive() {
	s.counts.Arrived++
	s.counts.Received++
}

// fly counts a waiting request that is given to a replica.
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

// memory counts the bodies of a function that the gateway has in memory.
type memory struct {
	bodies  bodies // of requests
	answers bodies // to batches
}

// bodies counts the bytes of bodies in memory.
type bodies struct {
	within *bodies     // a larger group, with a bound, in which they count as well; nil if there is none
	bound  share.Bytes // of the bytes of the groups within this one

	mu    sync.Mutex
	bytes share.Bytes
}

// reserve counts n more bytes if that exceeds no bound, and reports whether it has.
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

// Bounds of the bodies of requests and of the answers to batches that are in memory at once, for the functions of one namespace and for all. The pods
// of gateways have twice as much memory. So whoever may create functions in one namespace only cannot use up the memory of the others.
const (
	maxNamespaceBodies = 512 * share.MiB
	maxAllBodies       = 1024 * share.MiB
)

// bodiesOf returns the count of the bodies of a namespace's functions. It is forgotten when the namespace has neither functions nor bodies. The
// caller holds the gateway's mutex.
func (g *Gateway) bodiesOf(namespace string) *bodies {
	b := g.namespaces[namespace]
	if b == nil {
		b = &bodies{within: &g.allBodies, bound: maxNamespaceBodies}
		g.namespaces[namespace] = b
	}
	return b
}

// forgetBodies forgets the counts of namespaces that have neither functions nor bodies any more. The caller holds the gateway's mutex.
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

// room is a reservation shared by several users, the last of which releases it.
type room struct {
	reservation
	users atomic.Int32
}

func (r *room) release() {
	if r != nil && r.users.Add(-1) == 0 {
		r.reservation.release()
	}
}

// reservation is a number of bytes reserved in bodies. The zero value is none.
type reservation struct {
	of    *bodies
	bytes share.Bytes
}

// moveTo reserves the bytes in other bodies instead if there is room, and reports whether there is.
func (r *reservation) moveTo(of *bodies) bool {
	switch {
	case r.of == nil:
		return true
	case !of.reserve(r.bytes, of.bound):
		return false
	}
	r.of.release(r.bytes)
	r.of = of
	return true
}

// release ends the reservation, if that has not happened yet.
func (r *reservation) release() {
	if r.of != nil {
		r.of.release(r.bytes)
	}
	*r = reservation{}
}

// rateMeter estimates the rate of arrivals by an exponential moving average, in which the newest second has the weight newestWeight.
type rateMeter struct {
	second time.Time // the start of the second that is being counted
	count  float64
	rate   float64 // the average up to that second
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

// perSecond returns the rate. During the first second it is the number of arrivals so far.
func (m *rateMeter) perSecond(now time.Time) float64 {
	m.advance(now)
	return max(m.rate, m.count)
}

// latencyWindow holds the latencies of the last 30 to 60 s: those of the current half minute and of the one before.
type latencyWindow struct {
	since        time.Time // start of the newer half minute
	newer, older *hdrhistogram.Histogram
}

const windowLength = 30 * time.Second

// add counts a latency. Those outside 10 us to 1 h count as the nearest bound.
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

// quantiles returns the median and the 99th percentile, or zeros if nothing was counted.
func (w *latencyWindow) quantiles(now time.Time) (p50, p99 time.Duration) {
	w.advance(now)
	if w.newer == nil && w.older == nil { // the usual case: in a large cluster most functions are idle, and this is called every second
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
