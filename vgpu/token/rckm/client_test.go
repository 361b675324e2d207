package rckm

import (
	"slices"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/token"
)

const (
	ms   = time.Millisecond
	tick = 5 * ms
)

// Printed is the algorithm of the laboratory to compare with, which only the external test package can import.
var Printed Algorithm

// load is work that a member has between two times: a number of blocks a tick, as far as its tokens allow.
type load struct {
	id       token.ID
	blocks   int64
	from, to time.Duration
	batch    time.Duration // length of each batch, if the host reports them; otherwise 0
}

// ended returns the length of the batch that ended in the tick before now, or 0.
func (l load) ended(now time.Duration) time.Duration {
	if l.batch > 0 && now > l.from && now-tick < l.to && (now-l.from)/l.batch > max(0, now-tick-l.from)/l.batch {
		return l.batch
	}
	return 0
}

// machine is a slice with clients that launch only while they have credit; one kernel may exceed it.
type machine struct {
	*Slice
	next     time.Duration
	loads    []load
	kernel   int64 // blocks of one kernel; 0: they come as they fit
	wild     bool  // clients launch without credit
	credit   map[token.ID]int64
	grants   map[token.ID]int64 // the latest tokens
	launched map[token.ID]int64
}

func newMachine(t testing.TB, c Config) *machine {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return &machine{Slice: s, next: token.Never,
		credit: map[token.ID]int64{}, grants: map[token.ID]int64{}, launched: map[token.ID]int64{}}
}

// advance calls Advance and applies the changes to the clients.
func (m *machine) advance(now time.Duration) []token.Change {
	changes, next := m.Advance(now)
	m.next = next
	for _, c := range changes {
		m.credit[c.ID], m.grants[c.ID] = c.Token.Amount, c.Token.Amount
	}
	return changes
}

// until plays all ticks up to now, and calls after following each of them.
func (m *machine) until(now time.Duration, after func(time.Duration)) {
	for {
		at := m.wake()
		if at > now {
			return
		}
		m.launch(at)
		m.advance(at)
		after(at)
	}
}

// wake returns the next tick for the slice or a load.
func (m *machine) wake() time.Duration {
	at := m.next
	for _, l := range m.loads {
		if l.to > m.now {
			at = min(at, (max(l.from, m.now)/tick+1)*tick)
		}
	}
	return at
}

// launch reports what the loads launched in the tick that ends now.
func (m *machine) launch(now time.Duration) {
	for _, l := range m.loads {
		first, last := max(l.from, now-tick), min(l.to, now)
		if first >= last {
			continue
		}
		want := l.blocks * int64(last-first) / int64(tick)
		n := m.take(l.id, want)
		m.launched[l.id] += n
		busy := (last - first) * time.Duration(n) / time.Duration(max(1, want))
		if err := m.Report(now, l.id, Launches{Blocks: n, First: first, Last: last, Device: busy, Batch: l.ended(now)}); err != nil {
			m.loads = slices.DeleteFunc(m.loads, func(other load) bool { return other.id == l.id })
			return
		}
	}
}

func (m *machine) take(id token.ID, want int64) (n int64) {
	if m.wild {
		return want
	}
	if m.kernel == 0 {
		n = min(want, max(0, m.credit[id]))
	}
	for m.kernel > 0 && n < want && n < m.credit[id] {
		n += m.kernel
	}
	m.credit[id] -= n
	return n
}
