package tokenserver_test

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/api/tokenwire"
	"github.com/gshare-dev/gshare/vgpu/node/tokenserver"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

const gib = 1024 * share.MiB

// patience bounds the wait for what must come about: long, so that a busy machine fails no test.
const patience = time.Minute

// half is 60 % of the SMs for half of the time: two of them take turns.
var half = share.Share{SMRequest: 600, SMLimit: 600, QuotaRequest: 500, QuotaLimit: 500, Memory: gib}

// tempDir is short enough for the name of a socket.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "gs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// rig is a server with one slice.
type rig struct {
	*tokenserver.Server
	slice *tokenserver.Slice
	dir   string
}

func newRig(t testing.TB, dir string, change ...func(*tokenserver.Config)) *rig {
	t.Helper()
	config := tokenserver.Config{Log: slog.New(slog.NewTextHandler(io.Discard, nil)), HelloTimeout: patience}
	for _, c := range change {
		c(&config)
	}
	server := tokenserver.New(config)
	t.Cleanup(server.Close)
	tokens, err := token.New(token.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return &rig{server, server.NewSlice(tokens), dir}
}

// add serves a container under the name, which is also that of its directory.
func (r *rig) add(t testing.TB, name string, s share.Share, change ...func(*tokenserver.Spec)) *tokenserver.Container {
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

func (r *rig) dial(t testing.TB, name string) *tokenclient.Client {
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

// eventually waits for what another goroutine or process brings about.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("still not: " + what)
		}
	}
}

func TestWelcome(t *testing.T) {
	r := newRig(t, tempDir(t))
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
	r := newRig(t, tempDir(t))
	r.add(t, "a", half)
	c := r.dial(t, "a")
	if !c.WaitRun(0, patience) {
		t.Fatal("no token")
	}
	eventually(t, "paused for want of work", func() bool { return state(c) == tokenwire.Pause })
}
