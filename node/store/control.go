package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/node/unixsocket"
)

// Control is the directory through which the agent finds the store of a slice and a namespace again. No pod can reach it. The store holds a
// lock on a file in it for as long as it lives. So it is found even if it hangs, and no second store serves beside it.
type Control string

// ErrHeld is returned by Control.Hold while another store holds the lock.
var ErrHeld = errors.New("another store holds the lock")

func (c Control) lockFile() string { return filepath.Join(string(c), "lock") }
func (c Control) socket() string   { return filepath.Join(string(c), "control.sock") }

// LogFile returns the name of the store's log.
func (c Control) LogFile() string { return filepath.Join(string(c), "log") }

// Hold takes the lock for the rest of this process's life. The process must not open the file again, as closing it would release the lock.
// The error is ErrHeld while another process holds the lock.
func (c Control) Hold() error {
	file, err := os.OpenFile(c.lockFile(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	err = unix.FcntlFlock(file.Fd(), unix.F_SETLK, &lock)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		err = ErrHeld
	}
	if err == nil {
		err = c.isFile(file)
	}
	if err != nil {
		file.Close()
		return err
	}
	held = append(held, file)
	return nil
}

// held keeps the files of locks from being closed by the garbage collector.
var held []*os.File

// isFile returns an error if the lock's file has been removed or replaced since it was opened.
func (c Control) isFile(file *os.File) error {
	opened, err := file.Stat()
	if err != nil {
		return err
	}
	now, err := os.Stat(c.lockFile())
	if err == nil && !os.SameFile(opened, now) {
		err = fmt.Errorf("%s has been replaced", c.lockFile())
	}
	return err
}

// Holder returns the process that holds the lock, which the caller closes; false if no process does.
func (c Control) Holder() (process.Process, bool) {
	file, err := os.OpenFile(c.lockFile(), os.O_RDWR, 0)
	if err != nil {
		return process.Process{}, false
	}
	defer file.Close()
	pid := holderOf(file)
	if pid <= 0 {
		return process.Process{}, false
	}
	p, err := process.Open(pid)
	if err == nil && holderOf(file) == pid {
		return p, true // the PID has not been reused
	}
	p.Close()
	return process.Process{}, false
}

// holderOf returns the PID of the process that holds a lock of the file, or 0.
func holderOf(file *os.File) int {
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if unix.FcntlFlock(file.Fd(), unix.F_GETLK, &lock) != nil || lock.Type == unix.F_UNLCK {
		return 0
	}
	return int(lock.Pid)
}

// HasServed reports whether a store has served here whose survivors have not been recorded yet, see AddSurvivors.
func (c Control) HasServed() bool {
	_, err := os.Stat(c.socket())
	return !errors.Is(err, fs.ErrNotExist)
}

// Listen opens the socket on which ServeControl answers.
func (c Control) Listen() (*unixsocket.Listener, error) {
	return unixsocket.Listen("unixpacket", c.socket(), 0o600, unixsocket.NewLimiter())
}

// controlVersion is the version of the answers on the socket.
const controlVersion = 1

// status is the answer of a store.
type status struct {
	Version int    `json:"version"`
	Error   string `json:"error,omitempty"` // why Trim failed
}

// ServeControl answers each connection after it has dropped what is no longer needed, see Trim. It returns when the listener is closed.
func (s *Server) ServeControl(listener *unixsocket.Listener) {
	for {
		conn, err := listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.pauseAccepting(context.Background(), err)
			continue
		}
		answer := status{Version: controlVersion}
		if err := s.Trim(); err != nil {
			answer.Error = err.Error()
		}
		text, err := json.Marshal(answer)
		if err == nil {
			_ = conn.SetWriteDeadline(time.Now().Add(patience))
			_, _ = conn.Write(text) // a peer that has ended needs no answer
		}
		conn.Close()
	}
}

// Trim asks the store to drop what is no longer needed, and returns nil once the store has done so. It returns an error if no store answers
// before the context ends.
func (c Control) Trim(ctx context.Context) error {
	conn, err := unixsocket.Dial(ctx, "unixpacket", c.socket())
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	text := make([]byte, 4096)
	n, err := conn.Read(text)
	if err != nil {
		return errors.Join(ctx.Err(), err)
	}
	var answer status
	if err := json.Unmarshal(text[:n], &answer); err != nil {
		return fmt.Errorf("answer of a store: %w", err)
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}
