package tokenserver

import (
	"net"
	"syscall"
	"time"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
)

// refusal is why the server ends a connection, as it tells the client.
type refusal struct {
	code syscall.Errno
	text string
}

func (r *refusal) Error() string { return r.text }

var (
	errShutDown   = &refusal{syscall.ESHUTDOWN, "the share is gone"}
	errTooMany    = &refusal{syscall.EAGAIN, "too many connections of this container"}
	errTooFast    = &refusal{syscall.EBUSY, "too many frames a second"}
	errSilent     = &refusal{syscall.ETIMEDOUT, "no HELLO came"}
	errNoHello    = &refusal{syscall.EPROTO, "the first frame is not HELLO"}
	errUnexpected = &refusal{syscall.EPROTO, "a frame that only the server sends"}
	errNoVGPU     = &refusal{syscall.EPROTO, "a vGPU that the container does not have"}
)

// sendTimeout bounds what a peer that does not read can hold up. A frame never waits unless the peer stopped reading.
const sendTimeout = 100 * time.Millisecond

// refuse tells a peer why it is cut off, as far as it listens.
func (s *Server) refuse(conn *net.UnixConn, why *refusal) {
	_ = s.send(conn, s.header(1), &tokenwire.Error{Code: uint32(why.code), Text: why.text}, nil)
}

// send writes one frame with descriptors.
func (s *Server) send(conn *net.UnixConn, h tokenwire.Header, m tokenwire.Message, fds []int) error {
	frame, err := tokenwire.Encode(h, m)
	if err != nil {
		return err
	}
	var rights []byte
	if len(fds) > 0 {
		rights = syscall.UnixRights(fds...)
	}
	if err := conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	_, _, err = conn.WriteMsgUnix(frame, rights, nil)
	return err
}
