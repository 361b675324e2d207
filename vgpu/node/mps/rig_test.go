package mps

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	fakegpu "github.com/gshare-dev/gshare/test/fake/gpu"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/supervisor"
)

var programs struct {
	once   sync.Once
	folder string
	err    error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if programs.folder != "" {
		os.RemoveAll(programs.folder)
	}
	os.Exit(code)
}

// fake gives the folder of the fake driver with its MPS, built once.
func fake(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	programs.once.Do(func() {
		if programs.folder, programs.err = os.MkdirTemp("", "gm"); programs.err == nil {
			programs.err = fakegpu.Build("../../..", programs.folder)
		}
	})
	if programs.err != nil {
		t.Fatal(programs.err)
	}
	return programs.folder
}

const slice = "GPU-7"

// member is who shares it, if nobody else is named.
var (
	member  = Member{Slice: slice, Name: "a", SMs: 100, Memory: share.MiB}
	members = []Member{member}
)

// rig is a keeper that looks often, with programs on its slice.
type rig struct {
	*Keeper
	t       *testing.T
	folder  string
	driver  string // its folder; the older one has none
	changes atomic.Int64
}

const namespaces = "r615" // the driver that has them

// versions runs a test with MPS v2 and v3.
func versions(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	for name, driver := range map[string]string{"v2": "", "v3": namespaces} {
		t.Run(name, func(t *testing.T) { test(t, newRig(t, driver)) })
	}
}

func newRig(t *testing.T, driver string) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "gp") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, folder: fake(t), driver: driver}
	t.Cleanup(func() { // the daemon and its server end with their pipes
		_ = r.control(slice).kill()
		os.RemoveAll(dir)
	})
	r.Keeper = r.keeper(dir)
	return r
}

func (r *rig) keeper(dir string) *Keeper { return r.keeperOf(Daemons{Dir: dir}) }

func (r *rig) keeperOf(d Daemons) *Keeper {
	d.Program, d.Simulated = filepath.Join(r.folder, r.driver, program), true
	k := New(Config{
		Daemons: d,
		Log:     slog.New(slog.DiscardHandler), Period: 10 * time.Millisecond, Changed: func() { r.changes.Add(1) },
		Rule: supervisor.Config{
			FirstDelay: 20 * time.Millisecond, LastDelay: 100 * time.Millisecond, Settled: time.Second, Patience: 50 * time.Millisecond,
			Grace: 100 * time.Millisecond,
		},
	})
	r.t.Cleanup(k.Close)
	return k
}

func (r *rig) eventually(what string, holds func() bool) {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("still not: %s; %v", what, r.Slices())
		}
	}
}

func (r *rig) open() error {
	_, err := r.Open(member)
	return err
}

func opens(k *Keeper) bool {
	_, err := k.Open(member)
	return err == nil
}

func (r *rig) opened() {
	r.t.Helper()
	r.eventually("open", func() bool { return r.open() == nil })
}

// shared is a slice that the member has come to.
func (r *rig) shared() {
	r.t.Helper()
	r.opened()
	r.Hold(members)
}

// opensFor waits until a process of a member may come, and gives its pipes.
func (r *rig) opensFor(m Member) (pipe string) {
	r.t.Helper()
	r.eventually("open for "+m.Name, func() bool {
		var err error
		pipe, err = r.Open(m)
		return err == nil
	})
	return pipe
}

// environment is that of the member's processes.
func (r *rig) environment() []string {
	pipe := r.Pipe(slice)
	if r.driver != "" {
		pipe = filepath.Join(pipe, serverName, member.Name)
	}
	return Environment(pipe, share.Share{SMLimit: member.SMs, Memory: member.Memory})
}

func (r *rig) daemon() int {
	r.t.Helper()
	daemons, _ := r.control(slice).processes()
	if len(daemons) != 1 {
		r.t.Fatalf("daemons: %v", daemons)
	}
	return daemons[0]
}

// another kills the daemon and waits for the one after it.
func (r *rig) another(first int) {
	r.t.Helper()
	r.signal(first, syscall.SIGKILL)
	r.eventually("another daemon", func() bool {
		daemons, _ := r.control(slice).processes()
		return len(daemons) == 1 && daemons[0] != first
	})
}

func (r *rig) servers() []int {
	_, servers := r.control(slice).processes()
	return servers
}

// client is a program on the slice that launches without end.
type client struct {
	*exec.Cmd
	ended chan error
}

func (r *rig) client(environment ...string) *client {
	r.t.Helper()
	return r.start(&syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}, environment...)
}

func (r *rig) start(attributes *syscall.SysProcAttr, environment ...string) *client {
	r.t.Helper()
	c := &client{exec.Command(filepath.Join(r.folder, "spin"), "spin_ns1000_sm100_blocks1", "sync=1", "pause=200000"), make(chan error, 1)}
	c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+r.folder)
	c.Env = append(c.Env, environment...)
	c.SysProcAttr = attributes
	if err := c.Start(); err != nil {
		r.t.Fatal(err)
	}
	go func() { c.ended <- c.Wait() }()
	r.t.Cleanup(func() { _ = c.Process.Kill() })
	return c
}

// joined starts a client and waits until the daemon knows it.
func (r *rig) joined() *client {
	r.t.Helper()
	c := r.client(r.environment()...)
	r.eventually("a client", func() bool { return r.knows(c.Process.Pid) })
	return c
}

func (r *rig) knows(pid int) bool {
	servers, err := r.control(slice).servers(r.t.Context())
	if err != nil {
		return false
	}
	for _, s := range servers {
		for _, known := range s.clients {
			if known == pid {
				return true
			}
		}
	}
	return false
}

func (c *client) alive() bool {
	select {
	case err := <-c.ended:
		c.ended <- err
		return false
	default:
		return true
	}
}

func (r *rig) signal(pid int, s syscall.Signal) {
	r.t.Helper()
	if err := syscall.Kill(pid, s); err != nil {
		r.t.Fatal(err)
	}
}
