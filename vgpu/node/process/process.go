// Package process holds on to processes of this machine by pidfd: a PID may be used again, a pidfd never is.
package process

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Process is one process, as the kernel names it.
type Process struct {
	PID int
	UID uint32
	fd  *os.File
}

// Peer asks the kernel who connected at the other end. The caller closes the process.
func Peer(conn *net.UnixConn) (p Process, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Process{}, err
	}
	var asked error
	if err := raw.Control(func(fd uintptr) { p, asked = ask(int(fd)) }); err != nil {
		return Process{}, err
	}
	return p, asked
}

func ask(socket int) (Process, error) {
	credentials, err := unix.GetsockoptUcred(socket, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Process{}, fmt.Errorf("credentials of the peer: %w", err)
	}
	p := Process{PID: int(credentials.Pid), UID: credentials.Uid}
	fd, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if errors.Is(err, unix.ENOPROTOOPT) { // before Linux 6.5
		fd, err = unix.PidfdOpen(p.PID, 0)
	}
	if err != nil {
		return Process{}, fmt.Errorf("process of the peer: %w", err)
	}
	p.fd, err = pidfd(fd)
	return p, err
}

// Open takes hold of the process that has the PID now. The caller closes it.
func Open(pid int) (Process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return Process{}, fmt.Errorf("process %d: %w", pid, err)
	}
	p := Process{PID: pid}
	p.fd, err = pidfd(fd)
	return p, err
}

// pidfd makes a file of a descriptor that waits for events without holding up a thread.
func pidfd(fd int) (*os.File, error) {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("pidfd: %w", err)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// Alive says that the process has not ended. What /proc said about its PID before the call is then about this process.
func (p Process) Alive() bool {
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return false
	}
	ended := true
	return raw.Control(func(fd uintptr) { ended = readable(fd) }) == nil && !ended
}

// Wait returns when the process has ended or the handle is closed.
func (p Process) Wait() {
	if raw, err := p.fd.SyscallConn(); err == nil {
		_ = raw.Read(readable) // an error means closed
	}
}

// Close lets go of the process. The zero value has nothing to let go of.
func (p Process) Close() {
	if p.fd != nil {
		p.fd.Close()
	}
}

// readable says, of a pidfd, that its process has ended.
func readable(fd uintptr) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0
}
