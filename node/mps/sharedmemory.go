package mps

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Before version 3, an MPS server and its clients exchange files in /dev/shm, and CUDA fails with error 805 if they see different ones. Each
// container has its own /dev/shm by default. So the agent mounts a tmpfs for each slice, which the daemon and the containers of the slice
// have at /dev/shm.

// SharedMemoryPath is where programs have their POSIX shared memory.
const SharedMemoryPath = "/dev/shm"

// sharedMemoryDir contains the mount points of all slices.
const sharedMemoryDir = "shm"

// sharedMemoryLimits are the mount options that limit how much the processes of a slice can leave in their shared memory. Kubernetes counts
// its pages as memory of the pod that wrote them, while that pod exists.
const sharedMemoryLimits = "size=1g,nr_inodes=64k,mode=0755"

func (d Daemons) sharedMemoryMount(slice string) string {
	return filepath.Join(d.Dir, sharedMemoryDir, slice)
}

// SharedMemory returns the directory that the MPS daemon and the containers of a slice have at /dev/shm. It is a directory inside the
// slice's tmpfs, and not the mount point, so that no container can be created with it while the tmpfs is not mounted.
func (d Daemons) SharedMemory(slice string) string {
	return filepath.Join(d.sharedMemoryMount(slice), "files")
}

// mountSharedMemory mounts the shared memory of the slice, unless an earlier daemon or agent has done so.
func (c control) mountSharedMemory() error {
	point, files := c.sharedMemoryMount(c.slice), c.SharedMemory(c.slice)
	if err := os.MkdirAll(point, 0o755); err != nil {
		return err
	}
	mounted, err := isMountPoint(point)
	if err != nil {
		return err
	}
	if !mounted {
		if err := unix.Mount("gshare-mps", point, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, sharedMemoryLimits); err != nil {
			return fmt.Errorf("mount the shared memory of slice %s: %w", c.slice, err)
		}
	}
	if err := os.Mkdir(files, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return os.Chmod(files, os.ModeSticky|0o777)
}

// unmountSharedMemory unmounts the shared memory of a slice, if it is mounted. Its files remain available to processes that still have it
// mounted.
func (d Daemons) unmountSharedMemory(slice string) error {
	point := d.sharedMemoryMount(slice)
	mounted, err := isMountPoint(point)
	if err != nil {
		return ignoreNotExist(err)
	}
	if mounted {
		if err := unix.Unmount(point, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmount the shared memory of slice %s: %w", slice, err)
		}
	}
	return os.Remove(point)
}

// slicesWithSharedMemory returns the slices whose shared memory is or was being mounted.
func (d Daemons) slicesWithSharedMemory() (slices []string) {
	entries, _ := os.ReadDir(filepath.Join(d.Dir, sharedMemoryDir))
	for _, e := range entries {
		slices = append(slices, e.Name())
	}
	return slices
}

// unmountAll unmounts the shared memory of all slices.
func (d Daemons) unmountAll() (all error) {
	for _, slice := range d.slicesWithSharedMemory() {
		all = errors.Join(all, d.unmountSharedMemory(slice))
	}
	return all
}

// isMountPoint reports whether a file system of its own is mounted at a directory.
func isMountPoint(dir string) (bool, error) {
	var own, parent syscall.Stat_t
	if err := errors.Join(syscall.Lstat(dir, &own), syscall.Lstat(filepath.Dir(dir), &parent)); err != nil {
		return false, err
	}
	return own.Dev != parent.Dev, nil
}

// withSharedMemory calls start on a thread with its own mount namespace, in which dir is mounted at /dev/shm. Processes that start creates
// stay in that namespace. Mounts that are later made or removed outside of it are made or removed inside it, too.
func withSharedMemory(dir string, start func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: no other goroutine may run in this namespace, so the thread ends with this one
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			done <- fmt.Errorf("create a mount namespace for the MPS daemon: %w", err)
			return
		}
		if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""), unix.Mount(dir, SharedMemoryPath, "", unix.MS_BIND, "")); err != nil {
			done <- fmt.Errorf("mount %s at %s for the MPS daemon: %w", dir, SharedMemoryPath, err)
			return
		}
		done <- start()
	}()
	return <-done
}

// usesSharedMemory reports whether the daemon of the slice is started with the slice's shared memory.
func (c control) usesSharedMemory() bool { return c.OwnSharedMemory && !c.isVersion3 }

// sharedMemoryMissing returns why containers cannot share memory with the daemon with a PID, or an empty string if they can.
func (c control) sharedMemoryMissing(pid int) string {
	if !c.usesSharedMemory() {
		return ""
	}
	own, ownErr := os.Stat(c.SharedMemory(c.slice))
	daemons, err := os.Stat(fmt.Sprintf("/proc/%d/root%s", pid, SharedMemoryPath))
	if err := errors.Join(ownErr, err); err != nil {
		return "the shared memory of the slice is missing: " + err.Error()
	}
	if !os.SameFile(own, daemons) {
		return "the daemon has another /dev/shm than the slice's containers: an earlier version of the agent has started it, and it ends with the slice's last pod"
	}
	return ""
}

// releaseSharedMemory unmounts the shared memory of a slice whose daemon has ended, unless a share has been opened or granted there
// meanwhile.
func (m *Manager) releaseSharedMemory(slice string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.OwnSharedMemory || len(m.daemons[slice].pending)+len(m.members[slice]) > 0 {
		return
	}
	if err := m.unmountSharedMemory(slice); err != nil {
		m.Log.Error("failed to unmount shared memory of MPS", "slice", slice, "error", err)
	}
}
