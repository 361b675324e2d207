package mps

import (
	"cmp"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/test/executable"
	"github.com/gshare-dev/gshare/test/native"
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

// fakeDriver returns the folder of the fake driver with its MPS, which the first call builds.
func fakeDriver(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	programs.once.Do(func() {
		if programs.folder, programs.err = os.MkdirTemp("", "gm"); programs.err == nil {
			programs.err = native.Build("../..", programs.folder, native.Driver)
		}
	})
	if programs.err != nil {
		t.Fatal(programs.err)
	}
	return programs.folder
}

const slice = "GPU-7"

// member is the usual member of the slice, and members is the set of it alone.
var (
	member  = Member{Slice: slice, Name: "a", SMs: 100, Memory: share.MiB}
	members = []Member{member}
)

// rig is a manager with a short interval, and the programs that run on its slice.
type rig struct {
	*Manager
	t        *testing.T
	folder   string       // of the fake programs
	driver   string       // folder of the driver's control program, below it
	programs string       // folder of another control program; empty: the driver's
	changes  atomic.Int64 // calls of OnChange
	reasons  sync.Map     // for which the slice was closed at some call of OnChange
}

// driver615 is the driver with MPS v3, which has namespaces. The default one, of the empty name, has v2.
const driver615 = "r615"

// forVersions runs a test with MPS v2 and v3.
func forVersions(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	for name, driver := range map[string]string{"v2": "", "v3": driver615} {
		t.Run(name, func(t *testing.T) { test(t, newRig(t, driver)) })
	}
}

// newRig returns a rig with directories of its own. It makes the test parallel.
func newRig(t *testing.T, driver string) *rig {
	t.Helper()
	t.Parallel()
	dir, err := os.MkdirTemp("", "gp") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, folder: fakeDriver(t), driver: driver}
	t.Cleanup(func() { // the daemon and its server end with their pipes
		_ = r.control(slice).killAll()
		os.RemoveAll(dir)
	})
	r.Manager = r.newManager(Daemons{Dir: dir})
	return r
}

// newManager returns another manager, which the test closes. On a busy machine a daemon that is well may take long to answer: only tests of
// daemons that hang set a short timeout.
func (r *rig) newManager(d Daemons) *Manager {
	d.CommandTimeout = cmp.Or(d.CommandTimeout, time.Minute)
	d.Program, d.Simulated = filepath.Join(cmp.Or(r.programs, filepath.Join(r.folder, r.driver)), controlProgram), true
	var m *Manager
	m = New(Config{
		Daemons: d,
		Log:     slog.New(slog.DiscardHandler), Interval: 10 * time.Millisecond, OnChange: func() {
			r.changes.Add(1)
			r.reasons.Store(m.ClosedReasons()[slice], true)
		},
		Supervisor: supervisor.Config{
			FirstDelay: 20 * time.Millisecond, LastDelay: 100 * time.Millisecond, Settled: time.Second, Patience: 50 * time.Millisecond,
			Grace: 100 * time.Millisecond,
		},
	})
	r.t.Cleanup(m.Close)
	return m
}

// restart replaces the manager by another one, as a restart of the agent does, and sets its members.
func (r *rig) restart(d Daemons, members ...Member) {
	r.Close()
	d.Dir = r.Dir
	r.Manager = r.newManager(d)
	r.SetMembers(members)
}

func (r *rig) waitFor(what string, holds func() bool) {
	r.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("timed out waiting for %s; closed: %v", what, r.ClosedReasons())
		}
	}
}

func (r *rig) isOpen() bool { return isOpen(r.Manager) }

func isOpen(m *Manager) bool {
	_, err := m.Open(member)
	return err == nil
}

func (r *rig) waitUntilOpen() {
	r.t.Helper()
	r.waitFor("the slice to open", r.isOpen)
}

// share makes the usual member hold the slice once it is open.
func (r *rig) share() {
	r.t.Helper()
	r.waitUntilOpen()
	r.SetMembers(members)
}

// openFor waits until the slice is open for a member and returns its pipe directory.
func (r *rig) openFor(m Member) string {
	r.t.Helper()
	var endpoint Endpoint
	r.waitFor("the slice to open for "+m.Name, func() (open bool) {
		var err error
		endpoint, err = r.Open(m)
		return err == nil
	})
	return endpoint.PipeDir
}

// environment returns the environment of the usual member's processes.
func (r *rig) environment() []string {
	pipeDir := r.ClientDir(slice)
	if r.driver == driver615 {
		pipeDir = filepath.Join(r.PipeDir(slice), serverName, member.Name)
	}
	return ClientEnvironment(pipeDir, share.Share{SMLimit: member.SMs, Memory: member.Memory})
}

// daemonPIDs returns the PIDs of the slice's daemons.
func (r *rig) daemonPIDs() []int {
	pids, _ := r.control(slice).findProcesses()
	return pids
}

// daemon returns the PID of the slice's only daemon.
func (r *rig) daemon() int {
	r.t.Helper()
	pids := r.daemonPIDs()
	if len(pids) != 1 {
		r.t.Fatalf("got daemons %v, want one", pids)
	}
	return pids[0]
}

// hang waits until a daemon serves a manager that soon takes it for hung, stops it, and returns its PID. One that was only slow may have been replaced
// before.
func (r *rig) hang(d Daemons) (pid int) {
	r.t.Helper()
	r.restart(d, members...)
	r.waitUntilOpen()
	r.waitFor("a daemon to be stopped", func() bool {
		pids := r.daemonPIDs()
		if len(pids) != 1 || syscall.Kill(pids[0], syscall.SIGSTOP) != nil {
			return false
		}
		pid = pids[0]
		return true
	})
	return pid
}

// replaceDaemon kills the daemon and waits for the next one.
func (r *rig) replaceDaemon() {
	r.t.Helper()
	first := r.daemon()
	r.signal(first, syscall.SIGKILL)
	r.waitFor("the next daemon", func() bool {
		pids := r.daemonPIDs()
		return len(pids) == 1 && pids[0] != first
	})
}

func (r *rig) waitForNoDaemon() {
	r.t.Helper()
	r.waitFor("the daemon to end", func() bool { return len(r.daemonPIDs()) == 0 })
}

func (r *rig) servers() []int {
	_, servers := r.control(slice).findProcesses()
	return servers
}

// client is a program on the slice that launches kernels until it is killed.
type client struct {
	*exec.Cmd
	ended chan error
}

func (r *rig) startClient(environment ...string) *client {
	r.t.Helper()
	return r.startBy(executable.Start, nil, environment...)
}

// startBy starts a client with attributes by a function.
func (r *rig) startBy(start func(*exec.Cmd) error, attributes *syscall.SysProcAttr, environment ...string) *client {
	r.t.Helper()
	c := &client{exec.Command(filepath.Join(r.folder, "spin"), "spin_ns1000_sm100_blocks1", "sync=1", "pause=200000"), make(chan error, 1)}
	c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+r.folder)
	c.Env = append(c.Env, environment...)
	c.SysProcAttr = attributes
	if err := start(c.Cmd); err != nil {
		r.t.Fatal(err)
	}
	go func() { c.ended <- c.Wait() }()
	r.t.Cleanup(func() { _ = c.Process.Kill() })
	return c
}

// connect starts a client of the usual member and waits until the daemon lists it.
func (r *rig) connect() *client {
	r.t.Helper()
	c := r.startClient(r.environment()...)
	r.waitForClient(c)
	return c
}

func (r *rig) waitForClient(c *client) {
	r.t.Helper()
	r.waitFor("the daemon to list the client", func() bool { return r.lists(c.Process.Pid) })
}

// lists reports whether the daemon lists a process as its client.
func (r *rig) lists(pid int) bool {
	servers, err := r.control(slice).listServers(r.t.Context())
	return err == nil && slices.ContainsFunc(servers, func(s server) bool { return slices.Contains(s.clients, pid) })
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
