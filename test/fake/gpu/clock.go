package gpu

import (
	"sync/atomic"
	"time"

	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
)

// Clock is the virtual clock for a token server (tokenserver.Clock). Its methods may be called with the server's lock held, so they
// never advance the clock themselves: that may fire a timer, which takes the lock.
type Clock struct{ s *Simulation }

// Clock returns the clock of the simulation, for a token server in this process.
func (s *Simulation) Clock() Clock { return Clock{s} }

// Now implements tokenserver.Clock.
func (c Clock) Now() time.Duration {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.s.time()
}

// Wake wakes all threads that wait for a word to check it again, as the simulation does not know which word that is.
func (c Clock) Wake(*atomic.Uint32) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.wakes++
	c.s.poke()
}

// FrameHandled implements tokenserver.Clock.
func (c Clock) FrameHandled() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.inFlight--
	c.s.poke()
}

// NewTimer implements tokenserver.Clock. Time stands still while fire runs.
func (c Clock) NewTimer(fire func()) tokenserver.Timer {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	t := &timer{s: c.s, fire: fire}
	c.s.timers = append(c.s.timers, t)
	return t
}

type timer struct {
	s    *Simulation
	fire func()
	set  bool
	at   time.Duration
}

// Set implements tokenserver.Timer.
func (t *timer) Set(at time.Duration) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.set, t.at = true, at
	t.s.poke()
}

// Stop implements tokenserver.Timer.
func (t *timer) Stop() {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.set = false
	t.s.poke()
}

// fire calls the functions of expired timers, in the order of their creation, without the lock, as they call the clock.
func (s *Simulation) fire() {
	for _, t := range s.timers {
		if !t.set || t.at > s.now {
			continue
		}
		t.set = false
		s.firing++
		s.mu.Unlock()
		t.fire()
		s.mu.Lock()
		s.firing--
	}
}
