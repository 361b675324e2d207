package tokenserver

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
)

// refusal is why the server ends a connection, as it tells the client.
type refusal struct {
	reason Reason
	code   syscall.Errno
	text   string
}

func (r *refusal) Error() string { return r.text }

var (
	errShutDown   = &refusal{Gone, syscall.ESHUTDOWN, "the share is gone"}
	errTooMany    = &refusal{TooMany, syscall.EAGAIN, "too many connections of this container"}
	errTooFast    = &refusal{TooFast, syscall.EBUSY, "too many frames a second"}
	errSilent     = &refusal{Silent, syscall.ETIMEDOUT, "no HELLO came"}
	errNoHello    = &refusal{Misplaced, syscall.EPROTO, "the first frame is not HELLO"}
	errUnexpected = &refusal{Misplaced, syscall.EPROTO, "a frame that only the server sends"}
	errTimeOnly   = &refusal{Outdated, syscall.EPROTONOSUPPORT, "a hook that does not know block tokens"}
	errNoVGPU     = &refusal{Misplaced, syscall.EPROTO, "a vGPU that the container does not have"}
)

// refuse tells a peer why it is cut off, as far as it listens.
func (s *Server) refuse(conn *net.UnixConn, why *refusal) {
	s.counted.refused[why.reason].Add(1)
	_ = s.send(conn, s.header(1), &tokenwire.Error{Code: uint32(why.code), Text: why.text}, nil)
}

// send writes one frame with descriptors, at once or never. The few frames that a connection gets always have room, so who
// lets them wait has stopped reading; a time limit in its place would also hit those whose server is short of processors.
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
