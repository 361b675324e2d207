package tokenserver

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Clock is the time of a server and the waking of those who wait on its pages. Experiments replace the real one by a
// clock of their own; everything that a server does it does in a call of Clock's, of a connection's or of its user's.
type Clock interface {
	// Now is CLOCK_MONOTONIC, which clients share.
	Now() time.Duration
	// NewTimer gives a timer that calls fire at the time that was set last. Calls may overlap with anything; those of
	// one timer that are late may come together as one.
	NewTimer(fire func()) Timer
	// Wake wakes all that wait for the word to change; the word lies on a shared page and has changed.
	Wake(word *atomic.Uint32)
	// Handled says that one frame of a client has been dealt with, whatever it was.
	Handled()
}

// Timer calls its function once for each time that is set. Setting it again replaces the earlier time.
type Timer interface {
	Set(at time.Duration)
	Stop()
}

// RealClock is the machine's.
type RealClock struct{}

// Now implements Clock.
func (RealClock) Now() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // the kernel has this clock since 2.6
	}
	return time.Duration(now.Nano())
}

// NewTimer implements Clock.
func (c RealClock) NewTimer(fire func()) Timer {
	t := &realTimer{clock: c, timer: time.AfterFunc(time.Hour, fire)}
	t.timer.Stop()
	return t
}

// Wake implements Clock.
func (RealClock) Wake(word *atomic.Uint32) { futexWake(word) }

// Handled implements Clock.
func (RealClock) Handled() {}

type realTimer struct {
	clock RealClock
	timer *time.Timer
}

func (t *realTimer) Set(at time.Duration) { t.timer.Reset(max(0, at-t.clock.Now())) }
func (t *realTimer) Stop()                { t.timer.Stop() }
