package tokenserver

import (
	"sync/atomic"
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// reportLate bounds what a process may report as busy at once, beyond the time since its last report.
const reportLate = 100 * time.Millisecond

// seat is one process on one vGPU, and what its page said when it was last read.
type seat struct {
	pid    int
	server page[tokenwire.ServerPage]
	client page[tokenwire.ClientPage]

	since    time.Duration // when its state changed last
	active   time.Duration // the last sign of work
	lastRead time.Duration
	launches uint64
	busy     uint64
	running  bool
	open     bool          // has work under way
	waiting  bool          // has said so, or its page says so
	asked    time.Duration // since when it waits
	cycles   uint64        // launch cycles that were read
}

// newSeat makes the pages of a process. It starts paused.
func newSeat(v VGPU, pid int, now time.Duration) (_ *seat, err error) {
	s := &seat{pid: pid, since: now, active: now, lastRead: now}
	if s.server, err = newPage[tokenwire.ServerPage]("gshare-server", readOnly); err != nil {
		return nil, err
	}
	if s.client, err = newPage[tokenwire.ClientPage]("gshare-client", fixedSize); err != nil {
		s.server.close()
		return nil, err
	}
	config := &v.Slice.server.Config
	s.server.at.Window.Store(uint64(config.Window))
	s.server.at.RunAhead.Store(uint64(config.RunAhead))
	s.server.at.Guaranteed.Store(uint32(v.guaranteed()))
	s.server.at.MemoryLimit.Store(uint64(v.Memory))
	s.set(tokenwire.Pause, now)
	return s, nil
}

// read gives the device time that the process reports since the last call, and whether it has work under way. It cannot have
// been busy for longer than the time that went by, except with what it reports late.
func (s *seat) read(now time.Duration) (time.Duration, bool) {
	open := s.client.at.Open.Load() > 0 // before what it becomes
	launches, busy := s.client.at.Launches.Load(), s.client.at.Busy.Load()
	if s.client.at.Waiting.Load() > 0 {
		s.wait(now)
	}
	if launches != s.launches || busy != s.busy || open {
		s.active = now
	}
	delta := min(max(busy, s.busy)-s.busy, uint64(now-s.lastRead+reportLate))
	s.launches, s.busy, s.open, s.lastRead = launches, busy, open, now
	return time.Duration(delta), open
}

// wait notes that the process waits.
func (s *seat) wait(now time.Duration) {
	if !s.running && !s.waiting {
		s.waiting, s.asked = true, now
	}
}

// wants says that the process has work for the device. One that was stopped with work under way most likely has more, and
// will say so when it has launched what it may: its vGPU keeps its place until then.
func (s *seat) wants(now time.Duration) bool {
	return s.waiting || s.open || s.running && now-max(s.active, s.since) < idleAfter
}

// announce writes the token on the page.
func (s *seat) announce(t *token.Token) {
	s.server.at.Sequence.Store(t.Sequence)
	s.server.at.Amount.Store(uint64(t.Amount))
	s.server.at.Deadline.Store(uint64(t.Deadline))
}

// bound is how much work the process may have queued.
func (s *seat) bound(ahead time.Duration) { s.server.at.RunAhead.Store(uint64(ahead)) }

// set changes the state. The caller wakes those who wait for it.
func (s *seat) set(state tokenwire.State, now time.Duration) {
	s.since = now
	s.running = state == tokenwire.Run
	s.waiting = s.waiting && !s.running
	s.server.at.SetHeartbeat(now)
	s.server.at.SetState(state)
	s.server.at.Wake.Add(1)
}

func (s *seat) close() {
	s.server.close()
	s.client.close()
}

// subtract takes off what a process said it held; clients write both numbers, so neither can be trusted.
func subtract(sum *atomic.Uint64, part uint64) {
	for {
		old := sum.Load()
		if sum.CompareAndSwap(old, old-min(old, part)) {
			return
		}
	}
}
