// Package unixsocket listens on and connects to Unix sockets that any process may connect to. A flood of connections costs the listener
// a bounded amount of CPU time: it accepts them at a bounded rate, in the order of their arrival, and the kernel makes the others wait.
package unixsocket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"
)

const (
	// AcceptsPerSecond is the default rate at which connections are accepted, and also the burst that is accepted at once.
	AcceptsPerSecond = 1000
	// backlog is the number of connections that may wait to be accepted. The next one waits at most backlog/AcceptsPerSecond, 128 ms.
	backlog = 128
	// dialTimeout limits how long Dial waits to get into the backlog.
	dialTimeout = 5 * time.Second
)

// NewLimiter returns a limiter of accepted connections, which several listeners may share. They then take turns.
func NewLimiter() *rate.Limiter { return rate.NewLimiter(AcceptsPerSecond, AcceptsPerSecond) }

// Listener accepts connections at a bounded rate.
type Listener struct {
	*net.UnixListener
	accepts *rate.Limiter
	open    context.Context // cancelled by Close
	cancel  context.CancelFunc
	name    string
	file    os.FileInfo // identifies the socket's file as it was created
	unlink  sync.Once   // done when the file has been removed, or is to be kept
}

// maxName is the maximum length of a socket's path: the kernel has 108 bytes for it, and its end takes one.
const maxName = 107

func checkName(name string) error {
	if len(name) > maxName {
		return fmt.Errorf("the path %s of a socket has %d bytes, and can have %d", name, len(name), maxName)
	}
	return nil
}

// Listen opens a socket with the given file mode in place of one that a killed server has left.
func Listen(network, name string, mode os.FileMode, accepts *rate.Limiter) (_ *Listener, err error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	switch info, err := os.Lstat(name); {
	case err == nil && info.Mode().Type() != os.ModeSocket:
		return nil, fmt.Errorf("%s exists and is not a socket", name)
	case err == nil:
		if err := os.Remove(name); err != nil {
			return nil, err
		}
	}
	listener, err := net.ListenUnix(network, &net.UnixAddr{Name: name, Net: network})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(shortenBacklog(listener), os.Chmod(name, mode)); err != nil {
		listener.Close()
		return nil, err
	}
	file, err := os.Lstat(name)
	if err != nil {
		listener.Close()
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // package net would remove whatever file has the name by then
	open, cancel := context.WithCancel(context.Background())
	return &Listener{UnixListener: listener, accepts: accepts, open: open, cancel: cancel, name: name, file: file}, nil
}

// shortenBacklog replaces the backlog of package net, which is the system's maximum.
func shortenBacklog(listener *net.UnixListener) error {
	raw, err := listener.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	return errors.Join(raw.Control(func(fd uintptr) { failed = unix.Listen(int(fd), backlog) }), failed)
}

// AcceptUnix blocks until the rate allows another connection and one has arrived.
func (l *Listener) AcceptUnix() (*net.UnixConn, error) {
	if l.accepts.Wait(l.open) != nil {
		return nil, net.ErrClosed
	}
	return l.UnixListener.AcceptUnix()
}

// KeepFile makes Close keep the socket's file. It must be called before Close.
func (l *Listener) KeepFile() { l.unlink.Do(func() {}) }

// Close closes the socket and removes its file, unless another server has put its own file in its place. A blocked call of AcceptUnix
// returns net.ErrClosed.
func (l *Listener) Close() error {
	l.cancel()
	// The file is removed before the socket is closed: until then, no other file can have its inode.
	l.unlink.Do(func() {
		now, err := os.Lstat(l.name)
		if err == nil && os.SameFile(l.file, now) {
			_ = os.Remove(l.name)
		}
	})
	return l.UnixListener.Close()
}

// Accept does the same as AcceptUnix.
func (l *Listener) Accept() (net.Conn, error) { return l.AcceptUnix() }

// Dial connects to a socket. Unlike package net, which fails at once if the backlog is full, it waits in the order of arrival, for up to
// five seconds.
func Dial(ctx context.Context, network, name string) (*net.UnixConn, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	kind := unix.SOCK_STREAM
	if network == "unixpacket" {
		kind = unix.SOCK_SEQPACKET
	}
	fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("create socket: %w", err)
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	timeout := unix.NsecToTimeval(int64(dialTimeout))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout); err != nil {
		return nil, fmt.Errorf("set timeout: %w", err)
	}
	for err = unix.EINTR; err == unix.EINTR; {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: name})
	}
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Addr: &net.UnixAddr{Name: name, Net: network}, Err: os.NewSyscallError("connect", err)}
	}
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	return conn.(*net.UnixConn), nil
}
