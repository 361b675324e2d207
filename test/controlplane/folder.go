package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/gshare-dev/gshare/test/controlplane/access"
)

// prepare makes the directory and the secrets.
func (c *ControlPlane) prepare() (err error) {
	if c.temporary {
		c.dir, err = os.MkdirTemp("", "gshare-lab-")
	} else {
		c.dir, err = filepath.Abs(c.dir)
	}
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(c.dir, LogFolder), 0o700); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if c.lock, err = lockFolder(c.dir); err != nil {
		return err
	}
	c.credentials, err = access.New(c.dir, []access.User{access.Admin, access.Scheduler}, loopback)
	return err
}

// lockFolder refuses a directory in use: a second etcd would take over the first one's socket. The
// lock goes when the file is closed or the process ends.
func lockFolder(folder string) (*os.File, error) {
	file, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock directory: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock directory %s: %w", folder, err)
	}
	return file, nil
}
