package mps

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// sharingRig returns a rig whose slices have shared memory of their own.
func sharingRig(t *testing.T, driver string) *rig {
	t.Helper()
	if err := withSharedMemory(t.TempDir(), func() error { return nil }); errors.Is(err, os.ErrPermission) {
		t.Skip("needs root, to mount file systems: ", err)
	}
	r := newRig(t, driver)
	t.Cleanup(func() { _ = r.unmountAll() })
	r.restart(Daemons{OwnSharedMemory: true})
	return r
}

// endpoint waits until the slice is open for the usual member and returns its endpoint.
func (r *rig) endpoint() (e Endpoint) {
	r.t.Helper()
	r.waitFor("the slice to open", func() bool {
		var err error
		e, err = r.Open(member)
		return err == nil
	})
	return e
}

// startContained starts a client that has a directory at /dev/shm, as containers have.
func (r *rig) startContained(memory string) (c *client) {
	r.t.Helper()
	if err := withSharedMemory(memory, func() error {
		c = r.startBy((*exec.Cmd).Start, nil, r.environment()...) // by this thread, which has the directory, and ends
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// inode returns the inode of a directory.
func inode(t *testing.T, dir string) uint64 {
	t.Helper()
	var s syscall.Stat_t
	if err := syscall.Stat(dir, &s); err != nil {
		t.Fatal(err)
	}
	return s.Ino
}

// isMounted reports whether the slice's shared memory is mounted.
func (r *rig) isMounted() bool {
	mounted, err := isMountPoint(r.sharedMemoryMount(slice))
	return err == nil && mounted
}

// TestSharedMemory: clients with the slice's shared memory work, those with another /dev/shm fail as with NVIDIA's daemons. The memory
// remains while the slice has shares, whatever becomes of agent and daemon, and no longer.
func TestSharedMemory(t *testing.T) {
	r := sharingRig(t, "")
	memory := r.endpoint().SharedMemory
	r.SetMembers(members)
	stranger := r.startClient(r.environment()...)
	if err := <-stranger.ended; err == nil {
		t.Error("a client with another /dev/shm runs")
	}
	first := r.startContained(memory)
	r.waitForClient(first)

	var limits unix.Statfs_t
	if err := unix.Statfs(memory, &limits); err != nil || limits.Blocks*uint64(limits.Bsize) != 1<<30 || limits.Files != 64<<10 {
		t.Errorf("the memory is limited to %d bytes and %d files (%v)", limits.Blocks*uint64(limits.Bsize), limits.Files, err)
	}
	before := inode(t, memory)
	r.restart(Daemons{OwnSharedMemory: true}, members...)
	if r.endpoint().SharedMemory != memory || inode(t, memory) != before || !first.alive() {
		t.Errorf("the next agent replaced the memory of a client (alive: %v)", first.alive())
	}
	_ = first.Process.Kill()
	r.replaceDaemon()
	if r.endpoint().SharedMemory != memory || inode(t, memory) != before {
		t.Error("the next daemon replaced the memory")
	}
	second := r.startContained(memory)
	r.waitForClient(second)
	_ = second.Process.Kill()
	r.SetMembers(nil)
	r.waitFor("the end of the memory", func() bool { return !exists(r.sharedMemoryMount(slice)) })
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestSharedMemoryOfVersion3: daemons and clients of version 3 need no shared memory.
func TestSharedMemoryOfVersion3(t *testing.T) {
	r := sharingRig(t, driver615)
	if memory := r.endpoint().SharedMemory; memory != "" || r.isMounted() {
		t.Errorf("memory %q, mounted: %v", memory, r.isMounted())
	}
}

// TestSharedMemoryAfterCrash: an agent that is killed while it mounts or unmounts leaves nothing that the next one does not use or remove.
func TestSharedMemoryAfterCrash(t *testing.T) {
	for name, crash := range map[string]func(t *testing.T, r *rig){
		"before the mount": func(t *testing.T, r *rig) {
			if err := os.MkdirAll(r.sharedMemoryMount(slice), 0o755); err != nil {
				t.Fatal(err)
			}
		},
		"before the directory": func(t *testing.T, r *rig) {
			if err := r.control(slice).mountSharedMemory(); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(r.SharedMemory(slice)); err != nil {
				t.Fatal(err)
			}
		},
		"before the unmount": func(t *testing.T, r *rig) {
			if err := r.control(slice).mountSharedMemory(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name+", shared again", func(t *testing.T) {
			r := sharingRig(t, "")
			crash(t, r)
			r.waitForClient(r.startContained(r.endpoint().SharedMemory))
		})
		t.Run(name+", empty", func(t *testing.T) {
			r := sharingRig(t, "")
			crash(t, r)
			r.SetMembers(nil)
			r.waitFor("the end of the memory", func() bool { return !exists(r.sharedMemoryMount(slice)) })
		})
		t.Run(name+", uninstalled", func(t *testing.T) {
			r := sharingRig(t, "")
			crash(t, r)
			if err := r.Stop(t.Context()); err != nil || exists(r.sharedMemoryMount(slice)) {
				t.Errorf("left: %v (%v)", exists(r.sharedMemoryMount(slice)), err)
			}
		})
	}
}

// TestDaemonWithoutSharedMemory: while a daemon of an earlier agent runs, whose clients would fail, the slice is closed. It is opened with
// the next daemon.
func TestDaemonWithoutSharedMemory(t *testing.T) {
	r := sharingRig(t, "")
	r.restart(Daemons{})
	r.share()
	r.restart(Daemons{OwnSharedMemory: true}, members...)
	want := "MPS does not accept clients on the slice now: the shared memory of the slice is missing"
	r.waitFor("the reason", func() bool {
		_, err := r.Open(member)
		return err != nil && len(err.Error()) > len(want) && err.Error()[:len(want)] == want
	})
	if err := r.control(slice).mountSharedMemory(); err != nil {
		t.Fatal(err)
	}
	if e, err := r.Open(member); err == nil {
		t.Errorf("open with %s, and the daemon has another /dev/shm", e.SharedMemory)
	}
	r.SetMembers(members) // it is not pending any more
	r.SetMembers(nil)
	r.waitForNoDaemon()
	r.waitForClient(r.startContained(r.endpoint().SharedMemory))
}
