// Package process opens processes of this machine by pidfd, which unlike a PID is never reused.
package process

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Process is an open process.
type Process struct {
	PID int
	UID uint32
	fd  *os.File
}

// Peer opens the process at the other end of a connection, by the credentials that the kernel recorded. The caller closes it.
func Peer(conn *net.UnixConn) (p Process, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Process{}, err
	}
	var asked error
	if err := raw.Control(func(fd uintptr) { p, asked = peerOf(int(fd)) }); err != nil {
		return Process{}, err
	}
	return p, asked
}

// peerOf opens the process that connected a socket.
func peerOf(socket int) (Process, error) {
	credentials, err := unix.GetsockoptUcred(socket, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return Process{}, fmt.Errorf("read credentials of peer: %w", err)
	}
	p := Process{PID: int(credentials.Pid), UID: credentials.Uid}
	fd, err := unix.GetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	if errors.Is(err, unix.ENOPROTOOPT) { // before Linux 6.5
		fd, err = unix.PidfdOpen(p.PID, 0)
	}
	if err != nil {
		return Process{}, fmt.Errorf("open process of peer: %w", err)
	}
	p.fd, err = pidfd(fd)
	return p, err
}

// Open opens the process that has the PID now. The caller closes it.
func Open(pid int) (Process, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return Process{}, fmt.Errorf("open process %d: %w", pid, err)
	}
	p := Process{PID: pid}
	p.fd, err = pidfd(fd)
	return p, err
}

// pidfd returns a non-blocking file for a pidfd, so that waiting for it takes no thread.
func pidfd(fd int) (*os.File, error) {
	unix.CloseOnExec(fd)
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("pidfd: %w", err)
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

// Alive reports whether the process has not ended. If so, what /proc had for its PID before the call is about this process.
func (p Process) Alive() bool {
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return false
	}
	ended := true
	return raw.Control(func(fd uintptr) { ended = readable(fd) }) == nil && !ended
}

// Wait blocks until the process has ended or is closed.
func (p Process) Wait() {
	if raw, err := p.fd.SyscallConn(); err == nil {
		_ = raw.Read(readable) // an error means closed
	}
}

// Close closes the handle, not the process. It does nothing for the zero value.
func (p Process) Close() {
	if p.fd != nil {
		p.fd.Close()
	}
}

// readable reports whether the process of a pidfd has ended.
func readable(fd uintptr) bool {
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(poll, 0)
	return err == nil && n > 0
}

// Kill sends SIGKILL to the process. It never hits another one, since a pidfd is not reused.
func (p Process) Kill() error {
	raw, err := p.fd.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	if err := raw.Control(func(fd uintptr) { sent = unix.PidfdSendSignal(int(fd), unix.SIGKILL, nil, 0) }); err != nil {
		return err
	}
	if sent != nil {
		return fmt.Errorf("kill process %d: %w", p.PID, sent)
	}
	return nil
}
