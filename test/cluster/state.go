package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Every cluster has a directory in the system's temporary directory, whose name is this prefix and a random suffix, and a cgroup of the
// same name. The process that holds the lock in the directory owns both.
const (
	statePrefix = "gshare-cluster-"
	lockFile    = "lock"
)

// newStateDir creates the directory of a cluster and locks it until the file is closed or the process ends. It first removes what killed
// processes left behind. A lock on the parent directory serializes callers, since a new directory is unlocked for a moment.
func newStateDir() (folder string, lock *os.File, err error) {
	parent, err := os.Open(os.TempDir())
	if err != nil {
		return "", nil, err
	}
	defer parent.Close()
	if err := unix.Flock(int(parent.Fd()), unix.LOCK_EX); err != nil {
		return "", nil, fmt.Errorf("lock %s: %w", parent.Name(), err)
	}
	if err := removeStaleStateDirs(); err != nil {
		return "", nil, err
	}
	if folder, err = os.MkdirTemp("", statePrefix); err != nil {
		return "", nil, err
	}
	lock, err = lockStateDir(folder)
	return folder, lock, err
}

func lockStateDir(folder string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(folder, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s: %w", folder, err)
	}
	return file, nil
}

// removeStateDir removes the directory and the cgroups of a cluster whose machines have been halted.
func removeStateDir(folder string) error {
	return errors.Join(removeCgroup("/"+filepath.Base(folder)), os.RemoveAll(folder))
}

// removeStaleStateDirs removes the directories and cgroups of clusters whose test processes were killed. Their machines ended together
// with those processes.
func removeStaleStateDirs() error {
	folders, err := filepath.Glob(filepath.Join(os.TempDir(), statePrefix+"*"))
	if err != nil {
		return err
	}
	for _, folder := range folders {
		lock, err := lockStateDir(folder)
		if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, os.ErrNotExist) {
			continue // in use, or just removed by another process
		}
		if err != nil {
			return err
		}
		err = removeStateDir(folder)
		_ = lock.Close()
		if err != nil {
			return fmt.Errorf("remove what an earlier cluster left: %w", err)
		}
	}
	return nil
}
