package machine

import (
	"fmt"
	"runtime"

	"golang.org/x/sys/unix"
)

// Sets of namespaces.
const (
	mountSpace   = unix.CLONE_NEWNS
	networkSpace = unix.CLONE_NEWNET
	hostSpace    = unix.CLONE_NEWUTS
	namespaces   = mountSpace | networkSpace | hostSpace | unix.CLONE_NEWPID | unix.CLONE_NEWIPC
)

// inside calls f on a thread that is in these namespaces of the machine. A process that f starts is in them as well,
// and is nevertheless a child of this process: no wrapper stands between them. (A thread does not change its own pid
// namespace, only its children's.)
func (m *Machine) inside(spaces int, f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // the main thread cannot end: hold it, and another one is taken
			defer runtime.UnlockOSThread()
			result <- m.inside(spaces, f)
			return
		}
		result <- m.enter(spaces, f) // the thread, locked, ends with the goroutine
	}()
	return <-result
}

func (m *Machine) enter(spaces int, f func() error) error {
	init, err := unix.PidfdOpen(m.PID(), unix.PIDFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("find machine %s: %w", m.Name, err)
	}
	defer unix.Close(init)
	if spaces&mountSpace != 0 {
		if err := unix.Unshare(unix.CLONE_FS); err != nil { // threads that share a working folder share its mounts
			return fmt.Errorf("separate a thread: %w", err)
		}
	}
	if err := unix.Setns(init, spaces); err != nil {
		return fmt.Errorf("enter machine %s: %w", m.Name, err)
	}
	return f()
}
