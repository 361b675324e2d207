package tokenserver_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
)

// TestPagesAreSealed tries to resize and seal the pages by the descriptors that a process receives.
func TestPagesAreSealed(t *testing.T) {
	r := newFixture(t, tempDir(t))
	r.add(t, "a", half)
	c := r.dial(t, "a")
	for i, name := range []string{"server", "container", "client"} {
		fd := c.VGPUs[0].Files[i]
		if err := unix.Ftruncate(fd, 0); err == nil {
			t.Errorf("the %s page can be cut short: the server would fault", name)
		}
		if err := unix.Ftruncate(fd, 1<<30); err == nil {
			t.Errorf("the %s page can grow", name)
		}
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err == nil {
			t.Errorf("the %s page can be sealed against the server", name)
		}
	}
}

func TestServerPageIsReadOnly(t *testing.T) {
	r := newFixture(t, tempDir(t))
	r.add(t, "a", half)
	c := r.dial(t, "a")
	fd := c.VGPUs[0].Files[0]
	both := unix.PROT_READ | unix.PROT_WRITE
	if _, err := unix.Mmap(fd, 0, tokenwire.PageSize, both, unix.MAP_SHARED); err == nil {
		t.Error("it can be mapped for writing")
	}
	if page, err := unix.Mmap(fd, 0, tokenwire.PageSize, unix.PROT_READ, unix.MAP_SHARED); err != nil {
		t.Error(err)
	} else if unix.Mprotect(page, both) == nil {
		t.Error("it can be made writable")
	}
	if _, err := unix.Pwrite(fd, []byte{1}, 64); err == nil {
		t.Error("it can be written")
	}
	again, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer again.Close()
	if _, err := again.WriteAt([]byte{1}, 64); err == nil {
		t.Error("it can be written when it is opened anew")
	}
	if _, err := unix.Mmap(int(again.Fd()), 0, tokenwire.PageSize, both, unix.MAP_SHARED); err == nil {
		t.Error("it can be mapped for writing when it is opened anew")
	}
}

// TestSealedPageEndsWithItsProcess: a process that adds seals to its page, the only one to which it may, counts as long as it lives, with its
// memory, and no longer.
func TestSealedPageEndsWithItsProcess(t *testing.T) {
	for _, role := range []string{"keep", "seal", "fix", "freeze"} {
		t.Run(role, func(t *testing.T) {
			r := newFixture(t, tempDir(t))
			container := r.add(t, "a", half)
			before := openResources(t)
			var processes []*exec.Cmd
			for range 4 {
				processes = append(processes, start(t, role, container.Dir))
			}
			eventually(t, "the connections have ended", func() bool { return container.Connections() == 0 })
			for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if used := container.Status().VGPUs[0].Used; !container.InUse() || used != 1600 {
					t.Fatalf("while the processes live, in use: %v, memory: %d", container.InUse(), used)
				}
			}
			for _, p := range processes {
				_ = p.Process.Kill()
				_ = p.Wait()
			}
			eventually(t, "the processes have ended", func() bool { return !container.InUse() && container.Status().VGPUs[0].Used == 0 })
			before.checkNoMore(t)
		})
	}
}
