package tokenserver

import (
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Clock is the server's source of time and wakes clients that wait on shared pages. Simulations replace it. A server acts only when it is
// called by its clock, by a connection or by its user.
type Clock interface {
	// Now returns CLOCK_MONOTONIC, which clients can read too.
	Now() time.Duration
	// NewTimer returns a timer that calls fire at the time set last. Calls may be concurrent with anything; late calls of
	// one timer may be merged into one.
	NewTimer(fire func()) Timer
	// Wake wakes all processes that wait for the word to change. The word is on a shared page and has changed.
	Wake(word *atomic.Uint32)
	// FrameHandled is called after each frame of a client, even one that was refused.
	FrameHandled()
}

// Timer calls a function once at a time that can be set again. Set replaces a time that has not been reached.
type Timer interface {
	Set(at time.Duration)
	Stop()
}

// RealClock implements Clock with CLOCK_MONOTONIC and futexes.
type RealClock struct{}

// Now returns CLOCK_MONOTONIC.
func (RealClock) Now() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err) // the kernel has this clock since 2.6
	}
	return time.Duration(now.Nano())
}

// NewTimer returns a Timer that calls fire in its own goroutine.
func (c RealClock) NewTimer(fire func()) Timer {
	t := &realTimer{clock: c, timer: time.AfterFunc(time.Hour, fire)}
	t.timer.Stop()
	return t
}

// futexWake is FUTEX_WAKE without FUTEX_PRIVATE_FLAG, as the waiters are other processes.
const futexWake = 1

// Wake wakes all processes that wait for a futex word. The system call cannot fail on a word of mapped memory.
func (RealClock) Wake(word *atomic.Uint32) {
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, math.MaxInt32, 0, 0, 0)
}

// FrameHandled does nothing. Simulated clocks use it to wait for the server.
func (RealClock) FrameHandled() {}

type realTimer struct {
	clock RealClock
	timer *time.Timer
}

func (t *realTimer) Set(at time.Duration) { t.timer.Reset(max(0, at-t.clock.Now())) }
func (t *realTimer) Stop()                { t.timer.Stop() }
