// Package mps opens connections to MPS control daemons, real or fake, in the same way as CUDA and NVIDIA's control program.
package mps

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// Session is the kind of session that a program requests from a daemon.
type Session uint32

// The kinds of sessions that tests open.
const (
	Client   Session = 2
	Commands Session = 4
)

// patience limits how long the daemon may take to send its first message.
const patience = 10 * time.Second

// Open connects to a daemon's socket, sends the credentials of this process, and requests a session.
func Open(socket string, session Session) (*net.UnixConn, error) {
	conn, err := Connect(socket)
	if err != nil {
		return nil, err
	}
	credentials := syscall.UnixCredentials(&syscall.Ucred{Pid: int32(os.Getpid()), Uid: uint32(os.Geteuid()), Gid: uint32(os.Getegid())})
	hello := make([]byte, 16)
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err = conn.Read(hello); err == nil {
		_, _, err = conn.WriteMsgUnix([]byte("OUTBCRED\x00"), credentials, nil)
	}
	_ = conn.SetReadDeadline(time.Time{})
	if err == nil {
		_, err = conn.Write(binary.NativeEndian.AppendUint32(nil, uint32(session)))
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("open a session at %s: %w", socket, err)
	}
	return conn, nil
}

// Connect connects to a daemon's socket without sending anything.
func Connect(socket string) (*net.UnixConn, error) {
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
}
