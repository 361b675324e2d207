package tokenserver_test

import (
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
)

// holdings is what this process holds that a connection could leave behind.
type holdings struct{ files, pages, goroutines int }

func held(t testing.TB) holdings {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return holdings{len(files), strings.Count(string(maps), "memfd:gshare-"), runtime.NumGoroutine()}
}

// leavesNothing holds that after do, and after the end of all connections, this process holds what it held before, and no
// session is on file.
func leavesNothing(t *testing.T, c *tokenserver.Container, do func()) {
	t.Helper()
	if first, err := tokenclient.Dial(c.Dir, 0); err == nil { // whatever is made once
		first.Close()
	}
	eventually(t, "the first connection has ended", func() bool { return c.Connections() == 0 })
	before := held(t)
	do()
	eventually(t, "one after them is taken in", func() bool {
		last, err := tokenclient.Dial(c.Dir, 0)
		return err == nil && last.Close() == nil
	})
	eventually(t, "all connections have ended", func() bool { return c.Connections() == 0 })
	after := held(t)
	for end := time.Now().Add(patience); after.goroutines > before.goroutines && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // the last goroutine may be on its way out
		after = held(t)
	}
	if after.files != before.files || after.pages != before.pages || after.goroutines > before.goroutines {
		t.Errorf("%+v is left, %+v was before", after, before)
	}
	if left, err := os.ReadDir(filepath.Join(c.Dir, "sessions")); err != nil || len(left) != 0 {
		t.Errorf("%d sessions are on file, %v", len(left), err)
	}
}

func TestConnectionsLeaveNothing(t *testing.T) {
	r := newRig(t, tempDir(t))
	container := r.add(t, "a", half)
	leavesNothing(t, container, func() {
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
	})
}

// rude are ways to treat a server badly on a connection.
var rude = map[string]func(t testing.TB, conn *net.UnixConn){
	"goes at once":          func(testing.TB, *net.UnixConn) {},
	"half a HELLO":          func(t testing.TB, conn *net.UnixConn) { _, _ = conn.Write(encode(t, &tokenwire.Hello{})[:40]) },
	"another frame":         func(t testing.TB, conn *net.UnixConn) { _, _ = conn.Write(encode(t, &tokenwire.Need{})) },
	"never reads its pages": func(t testing.TB, conn *net.UnixConn) { _, _ = conn.Write(encode(t, &tokenwire.Hello{})) },
	"says nothing for long": func(_ testing.TB, conn *net.UnixConn) { _, _ = conn.Read(make([]byte, tokenwire.MaxFrame)) },
	"HELLO, then an open end": func(t testing.TB, conn *net.UnixConn) {
		_, _ = conn.Write(encode(t, &tokenwire.Hello{}))
		_ = conn.CloseWrite()
	},
	"HELLO again and again": func(t testing.TB, conn *net.UnixConn) {
		for range 5 {
			_, _ = conn.Write(encode(t, &tokenwire.Hello{Session: 1}))
		}
	},
	"sends descriptors": func(t testing.TB, conn *net.UnixConn) {
		rights := syscall.UnixRights(int(os.Stdin.Fd()), int(os.Stdin.Fd()))
		_, _, _ = conn.WriteMsgUnix(encode(t, &tokenwire.Hello{}), rights, nil)
	},
}

// TestRudeConnectionsLeaveNothing mixes 1000 connections of the worst kinds.
func TestRudeConnectionsLeaveNothing(t *testing.T) {
	r := newRig(t, tempDir(t))
	r.HelloTimeout = 5 * time.Millisecond // so that good ones are cut off as well, now and then
	container := r.add(t, "a", half)
	leavesNothing(t, container, func() {
		for range 1000 / len(rude) {
			for _, treat := range rude {
				conn := connect(t, r, "a")
				treat(t, conn)
				conn.Close()
			}
		}
	})
}

func TestKilledProcessesLeaveNothing(t *testing.T) {
	r := newRig(t, tempDir(t))
	container := r.add(t, "a", half)
	leavesNothing(t, container, func() {
		for range 20 {
			p := start(t, "linger", filepath.Join(r.dir, "a"))
			_ = p.Process.Kill()
			_ = p.Wait()
		}
	})
}

// TestLeakIsSeen is the control of the tests above.
func TestLeakIsSeen(t *testing.T) {
	r := newRig(t, tempDir(t))
	r.add(t, "a", half)
	before := held(t)
	r.dial(t, "a")
	after := held(t)
	if after.files <= before.files || after.pages <= before.pages || after.goroutines <= before.goroutines {
		t.Errorf("a connection that is open does not count: %+v, %+v before", after, before)
	}
}

// TestClosedContainerLeavesNothing closes containers as soon as a process has its pages: the server may not have come further.
func TestClosedContainerLeavesNothing(t *testing.T) {
	r := newRig(t, tempDir(t))
	before := held(t)
	for range 100 {
		container := r.add(t, "a", half)
		c := r.dial(t, "a")
		if err := container.Close(); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	if after := held(t); after.files != before.files || after.pages != before.pages {
		t.Errorf("%+v is left, %+v was before", after, before)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "a")); !os.IsNotExist(err) {
		t.Errorf("the directory is left: %v", err)
	}
	r.add(t, "a", half)
}
