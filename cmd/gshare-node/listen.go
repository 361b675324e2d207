package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// occupy makes a directory this agent's, until the file is closed or the process ends. Two agents with one directory would
// take each other's sockets, and each would promise the same devices.
func occupy(directory string) (*os.File, error) {
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

// listen opens the control socket in the place of what a killed agent left. As root everybody may ask for shares: who may use
// the devices themselves is for their permissions to say.
func listen(name string) (net.Listener, error) {
	switch info, err := os.Lstat(name); {
	case err == nil && info.Mode().Type() != os.ModeSocket:
		return nil, fmt.Errorf("%s is there and is no socket", name)
	case err == nil:
		if err := os.Remove(name); err != nil {
			return nil, err
		}
	}
	listener, err := net.Listen("unix", name)
	if err != nil {
		return nil, err
	}
	mode := os.FileMode(0o600)
	if os.Geteuid() == 0 {
		mode = 0o666
	}
	if err := os.Chmod(name, mode); err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}
