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

	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
)

// resources counts what a connection could leak in this process.
type resources struct{ files, pages, goroutines int }

func openResources(t testing.TB) resources {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return resources{len(files), strings.Count(string(maps), "memfd:gshare-"), runtime.NumGoroutine()}
}

// checkNoMore waits until this process holds no more than it held then: the last goroutine, with its files, may be on its way out. It may hold
// less, if something of an earlier test ended late.
func (before resources) checkNoMore(t testing.TB) {
	t.Helper()
	after := openResources(t)
	for end := time.Now().Add(timeout); after.exceed(before) && time.Now().Before(end); after = openResources(t) {
		time.Sleep(time.Millisecond)
	}
	if after.exceed(before) {
		t.Errorf("%+v is left, %+v was before", after, before)
	}
}

func (r resources) exceed(than resources) bool {
	return r.files > than.files || r.pages > than.pages || r.goroutines > than.goroutines
}

// checkNoLeak checks that after do, once all connections have ended, this process holds no more resources than before, and that no
// session file is left.
func checkNoLeak(t *testing.T, c *tokenserver.Container, do func()) {
	t.Helper()
	if first, err := tokenclient.Dial(c.Dir, 0); err == nil { // whatever is made once
		first.Close()
	}
	eventually(t, "the first connection has ended", func() bool { return !c.InUse() })
	before := openResources(t)
	do()
	eventually(t, "one after them is taken in", func() bool {
		last, err := tokenclient.Dial(c.Dir, 0)
		return err == nil && last.Close() == nil
	})
	eventually(t, "all connections have ended", func() bool { return !c.InUse() })
	before.checkNoMore(t)
	if left, err := os.ReadDir(filepath.Join(c.Dir, "sessions")); err != nil || len(left) != 0 {
		t.Errorf("%d sessions are on file, %v", len(left), err)
	}
}

func TestConnectionsLeakNothing(t *testing.T) {
	r := newFixture(t, tempDir(t))
	container := r.add(t, "a", half)
	checkNoLeak(t, container, func() {
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

// misbehaviors are ways for a client to violate the protocol.
var misbehaviors = map[string]func(t testing.TB, conn *net.UnixConn){
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

// TestMisbehavingConnectionsLeakNothing mixes 1000 connections of all misbehaviors.
func TestMisbehavingConnectionsLeakNothing(t *testing.T) {
	r := newFixture(t, tempDir(t))
	r.HelloTimeout = 5 * time.Millisecond // so that good ones are cut off as well, now and then
	container := r.add(t, "a", half)
	checkNoLeak(t, container, func() {
		for range 1000 / len(misbehaviors) {
			for _, treat := range misbehaviors {
				conn := connect(t, r, "a")
				treat(t, conn)
				conn.Close()
			}
		}
	})
}

func TestKilledProcessesLeakNothing(t *testing.T) {
	r := newFixture(t, tempDir(t))
	container := r.add(t, "a", half)
	checkNoLeak(t, container, func() {
		for range 20 {
			p := start(t, "linger", filepath.Join(r.dir, "a"))
			_ = p.Process.Kill()
			_ = p.Wait()
		}
	})
}

// TestLeakIsSeen is the negative control of the tests above. What ends meanwhile of an earlier test hides one connection, but not each of several.
func TestLeakIsSeen(t *testing.T) {
	r := newFixture(t, tempDir(t))
	r.add(t, "a", half)
	var before, after resources
	for range 10 {
		before = openResources(t)
		r.dial(t, "a")
		after = openResources(t)
		if after.files > before.files && after.pages > before.pages && after.goroutines > before.goroutines {
			return
		}
	}
	t.Errorf("a connection that is open does not count: %+v, %+v before", after, before)
}

// TestClosedContainerLeaksNothing closes containers as soon as a process has its pages, while the server may still be handling it.
func TestClosedContainerLeaksNothing(t *testing.T) {
	r := newFixture(t, tempDir(t))
	before := openResources(t)
	for range 100 {
		container := r.add(t, "a", half)
		c := r.dial(t, "a")
		if err := container.Close(); err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	before.checkNoMore(t)
	if _, err := os.Stat(filepath.Join(r.dir, "a")); !os.IsNotExist(err) {
		t.Errorf("the directory is left: %v", err)
	}
	r.add(t, "a", half)
}
