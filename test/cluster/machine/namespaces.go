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

// runInNamespaces calls f on a thread that has entered some of the machine's namespaces. Processes that f starts run in them, and are
// children of this process. A PID namespace applies only to those children, not to the thread.
func (m *Machine) runInNamespaces(spaces int, f func() error) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() { // the main thread cannot end: hold it, and another one is taken
			defer runtime.UnlockOSThread()
			result <- m.runInNamespaces(spaces, f)
			return
		}
		result <- m.enterNamespaces(spaces, f) // the thread, locked, ends with the goroutine
	}()
	return <-result
}

func (m *Machine) enterNamespaces(spaces int, f func() error) error {
	init, err := unix.PidfdOpen(m.PID(), unix.PIDFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("find machine %s: %w", m.Name, err)
	}
	defer unix.Close(init)
	if spaces&mountSpace != 0 {
		if err := unix.Unshare(unix.CLONE_FS); err != nil { // a thread that shares it cannot enter another mount namespace
			return fmt.Errorf("unshare the working directory: %w", err)
		}
	}
	if err := unix.Setns(init, spaces); err != nil {
		return fmt.Errorf("enter machine %s: %w", m.Name, err)
	}
	return f()
}
