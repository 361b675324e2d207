package tokenserver_test

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/node/tokenserver"
	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

const gib = 1024 * share.MiB

// timeout limits how long tests wait for an event. It is long, so that no test fails on a busy machine.
const timeout = time.Minute

// half is a share of 60 % of the SMs for half of the time: two of them have to take turns.
var half = share.Share{SMRequest: 600, SMLimit: 600, QuotaRequest: 500, QuotaLimit: 500, Memory: gib}

// tempDir creates a directory whose name is short enough for a socket in it.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// fixture is a server with one slice.
type fixture struct {
	*tokenserver.Server
	slice *tokenserver.Slice
	dir   string
}

func newFixture(t testing.TB, dir string, change ...func(*tokenserver.Config)) *fixture {
	t.Helper()
	config := tokenserver.Config{Log: slog.New(slog.NewTextHandler(io.Discard, nil)), HelloTimeout: timeout}
	for _, c := range change {
		c(&config)
	}
	server := tokenserver.New(config)
	t.Cleanup(server.Close)
	tokens, err := token.New(token.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{server, server.NewSlice(tokens), dir}
}

// add serves a container of that name, in a directory of the same name.
func (r *fixture) add(t testing.TB, name string, s share.Share, change ...func(*tokenserver.Spec)) *tokenserver.Container {
	t.Helper()
	spec := tokenserver.Spec{
		ID: name, Dir: filepath.Join(r.dir, name),
		VGPUs: []tokenserver.VGPU{{Share: s, Slice: r.slice, UUID: "GPU-0"}},
	}
	for _, c := range change {
		c(&spec)
	}
	c, err := r.AddContainer(spec)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (r *fixture) dial(t testing.TB, name string) *tokenclient.Client {
	t.Helper()
	c, err := tokenclient.Dial(filepath.Join(r.dir, name), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func state(c *tokenclient.Client) tokenwire.State {
	return tokenwire.State(c.VGPUs[0].Server.State.Load())
}

// eventually waits until the condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(timeout); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("timed out waiting until " + what)
		}
	}
}

func TestWelcome(t *testing.T) {
	r := newFixture(t, tempDir(t))
	r.add(t, "a", half)
	c := r.dial(t, "a")
	page := c.VGPUs[0].Server
	if got := c.Welcome.VGPUs[0]; got != (tokenwire.VGPU{UUID: "GPU-0", MemoryLimit: uint64(gib)}) {
		t.Errorf("welcome: %+v", got)
	}
	if state(c) != tokenwire.Pause || page.MemoryLimit.Load() != uint64(gib) || page.Guaranteed.Load() != 500 {
		t.Errorf("page: state %v, memory %d, guaranteed %d", state(c), page.MemoryLimit.Load(), page.Guaranteed.Load())
	}
	policy, err := os.ReadFile(filepath.Join(r.dir, "a", "policy"))
	want := "version 1\nvgpu 0 GPU-0 memory " + strconv.Itoa(int(gib)) + " quota 500 sm 600\n"
	if err != nil || string(policy) != want {
		t.Errorf("policy %q, %v; want %q", policy, err, want)
	}
}

func TestGrantAndIdle(t *testing.T) {
	r := newFixture(t, tempDir(t))
	r.add(t, "a", half)
	c := r.dial(t, "a")
	if !c.WaitRun(0, timeout) {
		t.Fatal("no token")
	}
	eventually(t, "paused for want of work", func() bool { return state(c) == tokenwire.Pause })
}

// TestStatusWhileListening checks that the status of a prepared container can be read while it begins to listen, and names no process that
// does not reach the server before it has listened for long enough.
func TestStatusWhileListening(t *testing.T) {
	r := newFixture(t, t.TempDir())
	for i := range 20 {
		name := fmt.Sprint("container-", i)
		c, err := r.Prepare(tokenserver.Spec{
			ID: name, Dir: filepath.Join(r.dir, name), VGPUs: []tokenserver.VGPU{{Share: share.Share{SMRequest: 10, SMLimit: 10, QuotaRequest: 10, QuotaLimit: 10, Memory: share.MiB}, Slice: r.slice, UUID: "GPU-0"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		var reading sync.WaitGroup
		reading.Go(func() {
			if got := c.Status().Refused; got != "" {
				t.Errorf("%s: %q", name, got)
			}
		})
		if err := c.Listen(); err != nil {
			t.Error(err)
		}
		reading.Wait()
	}
}
