package tokenserver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
)

func openFiles(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// mappedPages counts gshare's pages in the memory of this process.
func mappedPages(t testing.TB) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), "memfd:gshare-")
}

func TestConnectionsLeaveNothing(t *testing.T) {
	r := newRig(t, tempDir(t))
	container := r.add(t, "a", half)
	files, pages := openFiles(t), mappedPages(t)
	r.dial(t, "a").Close() // whatever is made once
	for i := range 1000 {
		c, err := tokenclient.Dial(filepath.Join(r.dir, "a"), 0)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		if i%3 == 0 {
			_ = c.Send(&tokenwire.Need{})
		}
		if i%2 == 0 {
			_ = c.Send(&tokenwire.Bye{})
		}
		c.Close()
	}
	eventually(t, "all connections have ended", func() bool { return container.Connections() == 0 })
	if n, m := openFiles(t), mappedPages(t); n != files || m != pages {
		t.Errorf("%d files and %d pages are left, %d and %d before", n, m, files, pages)
	}
	if left, err := os.ReadDir(filepath.Join(r.dir, "a", "sessions")); err != nil || len(left) != 0 {
		t.Errorf("%d sessions are on file, %v", len(left), err)
	}
}

// TestLeakIsSeen is the control of the test above.
func TestLeakIsSeen(t *testing.T) {
	r := newRig(t, tempDir(t))
	r.add(t, "a", half)
	files, pages := openFiles(t), mappedPages(t)
	r.dial(t, "a")
	if openFiles(t) <= files || mappedPages(t) <= pages {
		t.Error("a connection that is open does not count")
	}
}

func TestClosedContainerLeavesNothing(t *testing.T) {
	r := newRig(t, tempDir(t))
	files, pages := openFiles(t), mappedPages(t)
	container := r.add(t, "a", half)
	c := r.dial(t, "a")
	if err := container.Close(); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if n, m := openFiles(t), mappedPages(t); n != files || m != pages {
		t.Errorf("%d files and %d pages are left, %d and %d before", n, m, files, pages)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "a")); !os.IsNotExist(err) {
		t.Errorf("the directory is left: %v", err)
	}
	r.add(t, "a", half)
}
