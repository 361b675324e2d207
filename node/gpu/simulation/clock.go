package simulation

import (
	"sync/atomic"
	"time"

	"github.com/gshare-dev/gshare/node/tokenserver"
)

// Clock is the simulation's clock in the form that a token server needs (tokenserver.Clock). Its methods never advance the virtual clock:
// they may be called while the server holds its lock, which the functions of timers would need.
type Clock struct{ s *Simulation }

// Clock returns the simulation's clock, for a token server in this process.
func (s *Simulation) Clock() Clock { return Clock{s} }

// Now returns the time since the start of the simulation.
func (c Clock) Now() time.Duration {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.s.time()
}

// Wake makes all threads that wait for a word in shared memory check it again, as a futex wake does. The simulation does not know which
// word a thread waits for.
func (c Clock) Wake(*atomic.Uint32) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.wakes++
	c.s.poke()
}

// FrameHandled reports that the token server has handled a frame that a client announced. The virtual clock stands still until then.
func (c Clock) FrameHandled() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.inFlight--
	c.s.poke()
}

// NewTimer returns a stopped timer that calls fire when it expires. The virtual clock stands still while fire runs.
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

func (t *timer) Set(at time.Duration) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.set, t.at = true, at
	t.s.poke()
}

func (t *timer) Stop() {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.set = false
	t.s.poke()
}

// fire calls the functions of expired timers, in the order in which the timers were created. It releases the lock during each call.
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
