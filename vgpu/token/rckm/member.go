package rckm

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Launches is what a member launched since its last report.
type Launches struct {
	Blocks      int64         // thread blocks, those of graphs included (D22)
	First, Last time.Duration // launches; they count where Blocks > 0
	Busy        bool          // launched work is not done yet
	Device      time.Duration // that launched work kept busy; 0: nothing was done yet, or unknown
	Batch       time.Duration // the longest batch that ended, from its first launch until the host had waited for it; 0: none, or unknown
}

// member is a share with its accounts.
type member struct {
	Member
	cap     share.PerMille // the limit that it joined with
	last    int64          // tokens that it was issued last: R_last of Algorithm 2
	lent    int64          // tokens that it had before they were cut for a lesson
	balance int64          // blocks that it may still launch in this tick; below zero in debt

	tick   Launches       // since the last tick
	silent int            // ticks since it launched, counted up to the rate window
	state  State          // of an SLO member by itself
	ratio  share.PerMille // its latest cycle that says something, per mille of the reference
	since  time.Duration  // it is in that state
	cycles cycles
	rate   calibration

	told  int64 // balance that the server knows of
	known bool  // the server knows of a token
}

func newMember(m Member) *member {
	n := &member{Member: m, cap: m.Limit, silent: window, state: Recovery}
	n.last = n.part(m.Request)
	n.balance = n.last
	return n
}

// max is MaxTokens: what was given, else what was measured.
func (m *member) max() int64 {
	if m.MaxTokens > 0 {
		return m.MaxTokens
	}
	return m.rate.saturation(m.cap)
}

// part is what a share of the SMs is worth in blocks a tick, at least one.
func (m *member) part(p share.PerMille) int64 { return max(1, m.max()*int64(p)/int64(share.Whole)) }

// full is what its limit is worth. At the cap MPS holds it, and tokens leave room for a tick with many blocks; a lower limit is
// held by tokens alone.
func (m *member) full() int64 {
	if m.MaxTokens == 0 && m.Limit == m.cap {
		return room * m.part(m.Limit)
	}
	return m.part(m.Limit)
}

func (m *member) report(now time.Duration, l Launches) {
	m.tick.Busy = l.Busy
	m.tick.Device = min(m.tick.Device+max(0, min(l.Device, horizon)), horizon)
	m.tick.Batch = max(m.tick.Batch, min(l.Batch, window*time.Second))
	if l.Blocks <= 0 {
		return
	}
	l.Blocks = min(l.Blocks, most)
	l.Last = min(max(l.Last, 0), now)
	l.First = min(max(l.First, 0), l.Last)
	if m.tick.Blocks == 0 {
		m.tick.First = l.First
	}
	m.tick.Last = l.Last
	m.tick.Blocks = min(m.tick.Blocks+l.Blocks, most)
	m.balance = max(m.balance-l.Blocks, -most)
	m.told = max(m.told-l.Blocks, -most) // the hook counts down by itself
}

// close ends n ticks: the rate window moves, and the launch cycle goes on or ends (DI-56, DI-58).
func (m *member) close(now time.Duration, n int64, clean bool, tick time.Duration) {
	if !clean {
		m.cycles.clean = now
	}
	held := m.balance <= 0
	m.rate.observe(m.tick, time.Duration(n)*tick, tick)
	if m.tick.Blocks > 0 || held {
		m.silent = 0
	} else {
		m.silent = int(min(int64(m.silent)+n, window))
	}
	m.cycles.observe(now, m.tick, held, window*tick)
	if m.quiet() {
		m.cycles.rest()
	}
	m.tick = Launches{Busy: m.tick.Busy}
}

// quiet says that it has not launched for a while.
func (m *member) quiet() bool { return m.silent > silence }

// issue gives the tokens of a tick. What was not used is gone; what was launched beyond the last ones is paid first (D21),
// but never for longer than a rate window: a member is not shut out for one large kernel.
func (m *member) issue(tokens int64) {
	m.last = tokens
	m.balance = max(min(m.balance, 0)+tokens, -window*tokens)
}
