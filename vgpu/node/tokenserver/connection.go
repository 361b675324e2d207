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

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/node/process"
)

// connection is one process's, from its HELLO to its end.
type connection struct {
	*Container
	conn    *net.UnixConn
	peer    process.Process
	heir    process.Process // that inherited the connection, where it is not the peer
	limiter limiter
	session *session
	buffer  [tokenwire.MaxFrame + 1]byte
}

// framesPerVGPU bounds the frames a second: one NEED per turn and thread is far below it.
const framesPerVGPU = 2000

// serve deals with one connection until it ends.
func (c *Container) serve(conn *net.UnixConn) {
	defer c.exit(conn)
	rate := int64(framesPerVGPU * len(c.VGPUs))
	k := &connection{Container: c, conn: conn, limiter: newLimiter(rate, c.server.Clock.Now())}
	err := k.run()
	defer k.heir.Close()
	defer k.peer.Close() // which ends the watch, and that the connection
	if why := (*refusal)(nil); errors.As(err, &why) {
		c.server.refuse(conn, why)
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && c.mayLog() {
		c.server.Log.Info("cut a process off", "container", c.ID, "pid", k.peer.PID, "err", err)
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
	if err := k.greet(); err != nil {
		return err // perhaps with a session: the container may be closed at any moment
	}
	k.watch()
	for {
		if err := k.next(k.handle); err != nil {
			return err
		}
	}
}

// identify holds the process against the container. What is read about a PID counts only if the process lives after it.
func (k *connection) identify() error {
	if k.Admit == nil {
		return nil
	}
	if err := k.Admit(k.peer); err != nil {
		return fmt.Errorf("process %d does not belong here: %w", k.peer.PID, err)
	}
	if !k.peer.Alive() {
		return fmt.Errorf("process %d has ended", k.peer.PID)
	}
	return nil
}

func (k *connection) inherited() bool { return k.peer.PID == k.Launcher }

// greet waits for HELLO. A connection that is to be inherited may stay silent: a program may never use its GPU.
func (k *connection) greet() error {
	if !k.inherited() {
		if err := k.conn.SetReadDeadline(time.Now().Add(k.server.HelloTimeout)); err != nil {
			return err
		}
	}
	err := k.next(func(m tokenwire.Message) error {
		hello, ok := m.(*tokenwire.Hello)
		if !ok {
			return errNoHello
		}
		return k.welcome(hello)
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return errSilent
	}
	if err != nil {
		return err
	}
	return k.conn.SetReadDeadline(time.Time{})
}

// next reads one frame and handles it.
func (k *connection) next(handle func(tokenwire.Message) error) error {
	n, _, flags, _, err := k.conn.ReadMsgUnix(k.buffer[:], nil) // descriptors that a peer sends are dropped
	switch {
	case err != nil:
		return err
	case n == 0:
		return io.EOF
	}
	defer k.server.Clock.Handled()
	if flags&unix.MSG_TRUNC != 0 {
		return &refusal{Malformed, syscall.EPROTO, "a frame that is too long"}
	}
	if !k.limiter.allow(k.server.Clock.Now()) {
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
		return k.session.snapshot(m.VGPU) // the amounts stand on the client's page
	case *tokenwire.Bye:
		return io.EOF
	}
	return errUnexpected
}

// watch ends the connection when the process does, even if others still hold the socket.
func (k *connection) watch() {
	p := k.peer
	if k.inherited() && k.session.pid != p.PID {
		var err error
		if p, err = openOf(k.session.pid, p.UID); err != nil {
			return // it cannot be seen from here, and ends with the socket
		}
		k.heir = p
	}
	k.serving.Go(func() {
		p.Wait()
		k.conn.Close()
	})
}

// openOf takes hold of a process that says itself who it is, if at least its user is right.
func openOf(pid int, uid uint32) (process.Process, error) {
	p, err := process.Open(pid)
	if err != nil {
		return p, err
	}
	info, err := os.Stat(fmt.Sprintf("/proc/%d", pid))
	if err == nil && info.Sys().(*syscall.Stat_t).Uid != uid {
		err = errors.New("it is another user's")
	}
	if err != nil {
		p.Close()
	}
	return p, err
}
