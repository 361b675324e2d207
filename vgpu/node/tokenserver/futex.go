package tokenserver

import (
	"math"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const futexWakeOperation = 1 // FUTEX_WAKE without FUTEX_PRIVATE_FLAG: waiters are other processes

// futexWake wakes every thread of any process that waits on the word. It cannot fail on a word of mapped memory.
func futexWake(word *atomic.Uint32) {
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWakeOperation, math.MaxInt32, 0, 0, 0)
}
