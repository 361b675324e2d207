package tokenserver

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/time/rate"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/node/process"
)

// connection is the connection of one process.
type connection struct {
	*Container
	conn      *net.UnixConn
	peer      process.Process // the process that connected
	inheritor process.Process // the process that uses the connection, if it inherited it from the peer
	limiter   *rate.Limiter
	session   *session
	buffer    [tokenwire.MaxFrame + 1]byte
}

// framesPerVGPU limits the frames a second of a connection. A well-behaved hook sends one NEED per turn and thread, far fewer.
const framesPerVGPU = 2000

// serve handles one connection until it ends.
func (c *Container) serve(conn *net.UnixConn) {
	defer c.removeConnection(conn)
	k := &connection{Container: c, conn: conn, limiter: newLimiter(framesPerVGPU * len(c.VGPUs))}
	err := k.run()
	defer k.inheritor.Close()
	defer k.peer.Close() // ends the goroutine of watchProcess, which closes the connection
	if reason := (*refusal)(nil); errors.As(err, &reason) {
		c.server.refuse(conn, reason)
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && c.server.allow(c.logLimiter) {
		c.server.Log.Info("closed connection of process", "container", c.ID, "pid", k.peer.PID, "error", err)
	}
}

func (k *connection) run() (err error) {
	if k.peer, err = process.Peer(k.conn); err != nil {
		return err
	}
	if err := k.identify(); err != nil {
		return &refusal{Stranger, syscall.EPERM, err.Error()}
	}
	defer k.end()
	if err := k.readHello(); err != nil {
		return err // a session may be open: the container can be closed at any moment
	}
	k.watchProcess()
	for {
		if err := k.readFrame(k.handle); err != nil {
			return err
		}
	}
}

// identify returns an error unless the process belongs to the container. Facts read about a PID are valid only if the process is
// still alive afterwards.
func (k *connection) identify() error {
	if k.Admit == nil {
		return nil
	}
	if err := k.Admit(k.peer); err != nil {
		return fmt.Errorf("process %d does not belong to the container: %w", k.peer.PID, err)
	}
	if !k.peer.Alive() {
		return fmt.Errorf("process %d has exited", k.peer.PID)
	}
	return nil
}

func (k *connection) fromLauncher() bool { return k.peer.PID == k.Launcher }

// readHello waits for HELLO and opens the session. A launcher's connection has no timeout: its program may never use the GPU.
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

// readFrame reads one frame and passes its message to handle.
func (k *connection) readFrame(handle func(tokenwire.Message) error) error {
	n, _, flags, _, err := k.conn.ReadMsgUnix(k.buffer[:], nil) // without a buffer for them, the kernel drops descriptors that a peer sends
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
	if !k.server.allow(k.limiter) {
		return errTooFast
	}
	_, m, err := tokenwire.Decode(k.buffer[:n])
	if err != nil {
		return &refusal{Malformed, syscall.EPROTO, err.Error()}
	}
	return handle(m)
}

func (k *connection) handle(m tokenwire.Message) error {
	switch m := m.(type) {
	case *tokenwire.Need:
		return k.session.need(m.VGPU)
	case *tokenwire.Snapshot:
		return k.session.snapshot(m.VGPU) // its amounts are on the client's page
	case *tokenwire.Bye:
		return io.EOF
	}
	return errUnexpected
}

// watchProcess closes the connection when its process exits, even if another process still holds the socket.
func (k *connection) watchProcess() {
	p := k.peer
	if k.fromLauncher() && k.session.pid != p.PID {
		var err error
		if p, err = openProcess(k.session.pid, p.UID); err != nil {
			return // not visible in this PID namespace: its session ends when the socket closes
		}
		k.inheritor = p
	}
	k.serving.Go(func() {
		p.Wait()
		k.conn.Close()
	})
}

// openProcess opens a process by the PID that it claims to have, and fails unless it runs as the given user.
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

// refusal is the reason for which the server closes a connection, as sent to the client.
type refusal struct {
	reason Reason
	code   syscall.Errno
	text   string
}

func (r *refusal) Error() string { return r.text }

var (
	errClosing    = &refusal{Closing, syscall.ESHUTDOWN, "the share has been removed"}
	errTooMany    = &refusal{TooMany, syscall.EAGAIN, "too many connections for this container"}
	errTooFast    = &refusal{TooFast, syscall.EBUSY, "too many frames per second"}
	errSilent     = &refusal{Silent, syscall.ETIMEDOUT, "timed out waiting for HELLO"}
	errNoHello    = &refusal{Unexpected, syscall.EPROTO, "first frame is not HELLO"}
	errUnexpected = &refusal{Unexpected, syscall.EPROTO, "unexpected frame: only the server sends this type"}
	errTimeOnly   = &refusal{Outdated, syscall.EPROTONOSUPPORT, "hook does not support block tokens"}
	errNoVGPU     = &refusal{Unexpected, syscall.EPROTO, "container has no vGPU of this index"}
)

// refuse counts a refusal and sends its reason to the client, if the client still reads.
func (s *Server) refuse(conn *net.UnixConn, reason *refusal) {
	s.counts.refused[reason.reason].Add(1)
	_ = s.send(conn, s.header(1), &tokenwire.Error{Code: uint32(reason.code), Text: reason.text}, nil)
}

// send writes one frame with file descriptors, without blocking. The socket buffer holds all frames that a connection ever receives,
// so a full one means that the client has stopped reading. A write timeout instead would also hit clients on a busy machine.
func (s *Server) send(conn *net.UnixConn, h tokenwire.Header, m tokenwire.Message, fds []int) error {
	frame, err := tokenwire.Encode(h, m)
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	once := func(fd uintptr) bool {
		sent = unix.Sendmsg(int(fd), frame, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		return true
	}
	if err := raw.Write(once); err != nil {
		return err
	}
	return sent
}
