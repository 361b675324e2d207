package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/node/unixsocket"
)

// lockDirectory locks the agent's directory until the file is closed or the process ends. Two agents in one directory would replace each
// other's sockets and grant the same devices twice.
func lockDirectory(directory string) (*os.File, error) {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, fmt.Errorf("directory: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(directory, "agent.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("directory: %w", err)
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = fmt.Errorf("another agent serves %s", directory)
	}
	if err != nil {
		lock.Close()
		return nil, err
	}
	return lock, nil
}

// listen opens the agent's Unix control socket. If the agent runs as root, every user may connect: the permissions of the GPU device files
// decide who may use them.
func listen(name string) (net.Listener, error) {
	mode := os.FileMode(0o600)
	if os.Geteuid() == 0 {
		mode = 0o666
	}
	if err := moveAside(name); err != nil {
		return nil, err
	}
	return unixsocket.Listen("unix", name, mode, unixsocket.NewLimiter())
}

// moveAside renames what has the name of the control socket and is none: in the agent's locked directory it is damage, and must not keep all
// runs from being served.
func moveAside(name string) error {
	info, err := os.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().Type() == os.ModeSocket {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Rename(name, fmt.Sprintf("%s.damaged-%d", name, time.Now().UnixNano()))
}

// serveDebug serves the debugging endpoints over HTTP at an address until stop is called. It does nothing if the address is empty.
func serveDebug(address string, server *http.Server) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("debugAddress: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener) // ends with Close
	}()
	return func() {
		server.Close()
		<-done
	}, nil
}
