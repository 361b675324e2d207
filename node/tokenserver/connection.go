package tokenserver

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
)

// connection is the connection of one process of a container.
type connection struct {
	*Container
	conn      *net.UnixConn
	peer      process.Process // the process that connected
	inheritor process.Process // the process that uses the connection, if it inherited it from the peer
	limiter   *rate.Limiter
	session   *session
	used      bool // the process has sent a frame other than HELLO
	buffer    [tokenwire.MaxFrame + 1]byte
}

// framesPerVGPU limits the frames per second of a connection, for each vGPU. A correct hook sends far fewer: one NEED per turn and thread.
const framesPerVGPU = 2000

// framesPerContainer is how many frames per second the server handles from all connections of a container together; further frames wait. A
// process sends one for each turn, and there are at most a few hundred turns in a second.
const framesPerContainer = 4000

// run handles HELLO and then the other frames, until the connection ends.
func (k *connection) run() error {
	defer k.detachSession()
	if err := k.readHello(); err != nil {
		return err // a session may be open, since the container can be closed at any moment
	}
	k.watchProcess()
	for {
		if err := k.readFrame(k.handle); err != nil {
			return err
		}
	}
}

// user returns the process that uses the connection.
func (k *connection) user() process.Process {
	if k.inheritor != (process.Process{}) {
		return k.inheritor
	}
	return k.peer
}

func (k *connection) fromLauncher() bool { return k.peer.PID == k.Launcher }

// readHello waits for the HELLO frame and opens the session. The connection of a launcher has no timeout, since the program that inherits
// it may never use the GPU.
func (k *connection) readHello() error {
	if !k.fromLauncher() {
		if err := k.conn.SetReadDeadline(time.Now().Add(k.server.HelloTimeout)); err != nil {
			return err
		}
	}
	err := k.readFrame(func(m tokenwire.Message) error {
		hello, ok := m.(*tokenwire.Hello)
		if !ok {
			return errNoHello
		}
		return k.openSession(hello)
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errSilent
	}
	if err != nil {
		return err
	}
	return k.conn.SetReadDeadline(time.Time{})
}

// readFrame reads one frame, decodes it and passes the message to handle.
func (k *connection) readFrame(handle func(tokenwire.Message) error) error {
	n, _, flags, _, err := k.conn.ReadMsgUnix(k.buffer[:], nil) // no buffer for descriptors: the kernel drops those that a peer sends
	switch {
	case err != nil:
		return err
	case n == 0:
		return io.EOF
	}
	defer k.server.Clock.FrameHandled()
	if flags&unix.MSG_TRUNC != 0 {
		return &refusal{Malformed, syscall.EPROTO, "frame exceeds the maximum size"}
	}
	if !k.server.allowEvent(k.limiter) {
		return errTooFast
	}
	if err := k.awaitTurn(); err != nil {
		return err
	}
	_, m, err := tokenwire.Decode(k.buffer[:n])
	if err != nil {
		return &refusal{Malformed, syscall.EPROTO, err.Error()}
	}
	return handle(m)
}

// awaitTurn blocks while the processes of the container together send more frames than framesPerContainer. Otherwise a thousand processes,
// each sending as many as one connection may, could use up the node's CPU time in the agent.
func (k *connection) awaitTurn() error {
	now := k.server.Clock.Now()
	at := time.Unix(0, int64(now))
	delay := k.limits.frames.ReserveN(at, 1).DelayFrom(at)
	if delay == 0 {
		return nil
	}
	passed := make(chan struct{})
	timer := k.server.Clock.NewTimer(sync.OnceFunc(func() { close(passed) }))
	defer timer.Stop()
	timer.Set(now + delay)
	select {
	case <-passed:
		return nil
	case <-k.closing:
		return net.ErrClosed
	}
}

func (k *connection) handle(m tokenwire.Message) error {
	first := !k.used
	k.used = true
	switch m := m.(type) {
	case *tokenwire.Need:
		return k.session.handleNeed(m.VGPU)
	case *tokenwire.Snapshot:
		return k.session.handleSnapshot(m.VGPU) // its amounts are on the client's page
	case *tokenwire.Bye:
		if first {
			return errUnreceived
		}
		return io.EOF
	case *tokenwire.Hello:
		return errHelloTwice
	}
	return errUnexpected
}

// watchProcess closes the connection when the process of the session exits, even if another process still holds the socket.
func (k *connection) watchProcess() {
	p := k.peer
	if k.fromLauncher() && k.session.pid != p.PID {
		var err error
		if p, err = openProcess(k.session.pid, p.UID); err != nil {
			return // not visible in this PID namespace; its session ends when the socket closes
		}
		k.inheritor = p
	}
	k.serving.Go(func() {
		p.Wait()
		k.conn.Close()
	})
}

// openProcess opens the process whose PID a client sent. It fails unless the process runs as the given user.
func openProcess(pid int, uid uint32) (process.Process, error) {
	p, err := process.Open(pid)
	if err != nil {
		return p, err
	}
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err == nil && info.Sys().(*syscall.Stat_t).Uid != uid {
		err = fmt.Errorf("process %d runs as another user", pid)
	}
	if err != nil {
		p.Close()
	}
	return p, err
}

// refusal is an error for which the server closes a connection after sending it to the client.
type refusal struct {
	reason Reason
	code   syscall.Errno
	text   string
}

func (r *refusal) Error() string { return r.text }

var (
	errClosing      = &refusal{Closing, syscall.ESHUTDOWN, "the share has been removed"}
	errTooMany      = &refusal{TooMany, syscall.EAGAIN, "the container has as many processes with a session as it may have"}
	errTooManyPages = &refusal{TooMany, syscall.EAGAIN, "the processes with a session of all containers are as many as the server may have"}
	errTooFast      = &refusal{TooFast, syscall.EBUSY, "too many frames per second"}
	errSilent       = &refusal{Silent, syscall.ETIMEDOUT, "timed out waiting for HELLO"}
	errNoHello      = &refusal{Unexpected, syscall.EPROTO, "first frame is not HELLO"}
	errUnexpected   = &refusal{Unexpected, syscall.EPROTO, "unexpected frame: only the server sends this type"}
	errHelloTwice   = &refusal{Unexpected, syscall.EPROTO, "the process has sent HELLO before"}
	errUnreceived   = &refusal{Unreceived, syscall.EPERM, "a process cannot receive its session: a seccomp filter may refuse recvmsg"}
	errTimeOnly     = &refusal{Outdated, syscall.EPROTONOSUPPORT, "hook does not support block tokens"}
	errNoVGPU       = &refusal{Unexpected, syscall.EPROTO, "container has no vGPU of this index"}
)
