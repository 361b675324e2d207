package tokenserver

import (
	"math"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Clock is the server's source of time, and wakes clients that wait on its pages. Simulations replace the real one. A server acts only
// inside a call from its clock, from a connection or from its caller.
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

// Timer calls its function once for each time set. Set replaces a time that has not been reached.
type Timer interface {
	Set(at time.Duration)
	Stop()
}

// RealClock is the machine's clock.
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

// futexWake is FUTEX_WAKE without FUTEX_PRIVATE_FLAG, as the waiters are other processes.
const futexWake = 1

// Wake implements Clock. The system call cannot fail on a word of mapped memory.
func (RealClock) Wake(word *atomic.Uint32) {
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, math.MaxInt32, 0, 0, 0)
}

// FrameHandled implements Clock.
func (RealClock) FrameHandled() {}

type realTimer struct {
	clock RealClock
	timer *time.Timer
}

func (t *realTimer) Set(at time.Duration) { t.timer.Reset(max(0, at-t.clock.Now())) }
func (t *realTimer) Stop()                { t.timer.Stop() }
