package standalone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/node/process"
	"github.com/gshare-dev/gshare/test/tokenclient"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/api/control"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const gib = 1024 * share.MiB

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

// newNode has two simulated devices of 80 GiB.
func newNode(t testing.TB, dir string, change ...func(*Options)) *Node {
	t.Helper()
	o := nodeOptions(dir)
	for _, f := range change {
		f(&o)
	}
	n, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

func nodeOptions(dir string) Options {
	return Options{
		Config: config.Configuration{Directory: dir, ContextReserveMiB: new(int64(0))}.WithDefaults(), MPS: mps.Daemons{Dir: dir, Simulated: true}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		timing:  timing{mpsTimeout: time.Minute, lease: 100 * time.Millisecond, request: time.Minute, period: 500 * time.Millisecond},
		Devices: []gpu.Device{{UUID: "GPU-0", Model: "A100", SMs: 108, Memory: 80 * gib}, {UUID: "GPU-1", Model: "A100", SMs: 108, Memory: 80 * gib}},
	}
}

// program is a process that lives until it is told to end.
type program struct {
	process.Process
	cmd   *exec.Cmd
	input io.Closer
}

func newProgram(t testing.TB) *program { return startProgram(t, func(*exec.Cmd) {}) }

func startProgram(t testing.TB, change func(*exec.Cmd)) *program {
	t.Helper()
	cmd := exec.Command("cat")
	change(cmd)
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &program{cmd: cmd, input: input}
	t.Cleanup(p.end)
	if p.Process, err = process.Open(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	p.UID = uint32(os.Getuid())
	return p
}

func (p *program) end() {
	p.input.Close()
	_ = p.cmd.Wait()
}

func ask(sm, quota, mib int64) control.RunRequest {
	return control.RunRequest{SM: &sm, Quota: &quota, MemoryMiB: &mib}
}

func (p *program) admit(n *Node, r control.RunRequest) (*control.Grant, *control.Refusal) {
	return n.granter.admit(context.Background(), p.Process, r, func(*control.Refusal) {})
}

func mustAdmit(t testing.TB, n *Node, p *program, r control.RunRequest) *control.Grant {
	t.Helper()
	grant, refusal := p.admit(n, r)
	if refusal != nil {
		t.Fatalf("refused: %+v", *refusal)
	}
	return grant
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("still not: " + what)
		}
	}
}

// first is the oldest run.
func (n *Node) first() *run {
	n.runs.mu.Lock()
	defer n.runs.mu.Unlock()
	return n.runs.runs[0]
}

func TestGrant(t *testing.T) {
	n := newNode(t, tempDir(t))
	grant := mustAdmit(t, n, newProgram(t), ask(30, 50, 8192))
	want := []string{
		"GSHARE_DIR=" + grant.Dir, "CUDA_VISIBLE_DEVICES=GPU-0", "CUDA_MPS_PIPE_DIRECTORY=" + filepath.Join(n.Config.Directory, "clients", "GPU-0"),
		"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=0=8679M",
	}
	if diff := cmp.Diff(want, grant.Environment); diff != "" {
		t.Error(diff)
	}
	if !grant.Inherit || !strings.HasPrefix(grant.Enforcement.Identity, "cooperative") || len(grant.Enforcement.Missing) < 3 {
		t.Errorf("without a cgroup the grant says %+v", grant)
	}
	c, err := tokenclient.Dial(grant.Dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if v := c.Welcome.VGPUs[0]; v.UUID != "GPU-0" || v.MemoryLimit != uint64(8*gib) {
		t.Errorf("welcome: %+v", v)
	}
}

// TestFullDevices fills both devices and holds what is refused, and what is said to fit, against the node itself.
func TestFullDevices(t *testing.T) {
	n := newNode(t, tempDir(t))
	for range 2 {
		mustAdmit(t, n, newProgram(t), ask(60, 60, 40960))
	}
	for _, test := range []struct {
		ask    control.RunRequest
		kind   control.RefusalKind
		reason string
		fits   []string
	}{
		{ask(60, 60, 1024), control.Busy, "insufficient GPU SM-time", []string{"--sm 40", "--quota 35"}},
		{ask(60, 60, 65536), control.Busy, "insufficient GPU memory", nil},
		{ask(40, 60, 65536), control.Busy, "insufficient GPU memory", []string{"--mem 40960Mi"}},
		{ask(100, 100, 1024), control.Busy, "isolation class", nil},
		{ask(60, 60, 1<<20), control.Invalid, "larger than a slice", []string{"--mem 81920Mi"}},
	} {
		t.Run(test.reason, func(t *testing.T) {
			_, refusal := newProgram(t).admit(n, test.ask)
			if refusal == nil || refusal.Kind != test.kind || !strings.Contains(refusal.Reason, test.reason) {
				t.Fatalf("%+v", refusal)
			}
			if diff := cmp.Diff(test.fits, refusal.Fits); diff != "" && test.fits != nil {
				t.Error(diff)
			}
		})
	}
	mustAdmit(t, n, newProgram(t), ask(60, 35, 1024)) // as was said
}

// TestFullOfLimits: what is said to fit keeps the limit of the request, unless it is the limit that is too large.
func TestFullOfLimits(t *testing.T) {
	for name, test := range map[string]struct {
		runs   []control.RunRequest // one GPU is whole
		ask    control.RunRequest
		field  string
		reason string
		fits   []string
	}{
		"limits": {[]control.RunRequest{askElastic("a", 30, 90)}, askElastic("b", 30, 90), share.FieldSMLimit, "add up to more than 150 %", []string{"--sm-limit 60"}},
		"class":  {[]control.RunRequest{ask(30, 100, 1024)}, askElastic("b", 30, 60), share.FieldIsolation, "another isolation class", nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, tempDir(t))
			whole := ask(100, 100, 1024)
			whole.Isolation = "exclusive"
			for _, run := range append(test.runs, whole) {
				mustAdmit(t, n, newProgram(t), run)
			}
			_, refusal := newProgram(t).admit(n, test.ask)
			if refusal == nil || refusal.Field != test.field || !strings.Contains(refusal.Reason, test.reason) || !slices.Equal(refusal.Fits, test.fits) {
				t.Errorf("%+v", refusal)
			}
		})
	}
}

func TestWrongRequests(t *testing.T) {
	n := newNode(t, tempDir(t))
	one, three := int64(1), int64(300)
	for name, test := range map[string]struct {
		ask   control.RunRequest
		field string
	}{
		"no SM":        {control.RunRequest{MemoryMiB: &one}, share.FieldSM},
		"no memory":    {control.RunRequest{SM: &one}, share.FieldMemory},
		"quota":        {ask(10, 101, 1), share.FieldQuota},
		"class":        {control.RunRequest{SM: &one, MemoryMiB: &one, Class: "gold"}, share.FieldClass},
		"isolation":    {control.RunRequest{SM: &one, MemoryMiB: &one, Isolation: "none"}, share.FieldIsolation},
		"swap":         {control.RunRequest{SM: &one, MemoryMiB: &one, Isolation: "swap"}, share.FieldIsolation},
		"elastic time": {control.RunRequest{SM: &one, MemoryMiB: &one, Quota: &one, Isolation: "elastic"}, share.FieldIsolation},
		"devices":      {control.RunRequest{SM: &three, MemoryMiB: &three}, share.FieldVGPU},
		"parts of two": {control.RunRequest{SM: new(int64(100)), VGPUs: new(int64(2)), MemoryMiB: &three}, share.FieldIsolation},
		"long name":    {control.RunRequest{SM: &one, MemoryMiB: &one, Name: strings.Repeat("x", 64)}, "name"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, refusal := newProgram(t).admit(n, test.ask); refusal == nil || refusal.Kind != control.Invalid || refusal.Field != test.field {
				t.Errorf("%s: %+v, want field %s", name, refusal, test.field)
			}
		})
	}
	if status := n.Status(); len(status.Runs) != 0 {
		t.Errorf("%d runs", len(status.Runs))
	}
}

func TestSeveralDevices(t *testing.T) {
	n := newNode(t, tempDir(t))
	r := ask(200, 100, 4096)
	r.Isolation = "exclusive"
	grant := mustAdmit(t, n, newProgram(t), r)
	if !strings.Contains(strings.Join(grant.Environment, " "), "CUDA_VISIBLE_DEVICES=GPU-0,GPU-1") {
		t.Errorf("%v", grant.Environment)
	}
	policy, err := os.ReadFile(filepath.Join(grant.Dir, "policy"))
	if err != nil || strings.Count(string(policy), "memory 2147483648 quota 1000 sm 1000") != 2 {
		t.Errorf("%s, %v", policy, err)
	}
}

func TestShareReturnsWithTheProgram(t *testing.T) {
	n := newNode(t, tempDir(t))
	p := newProgram(t)
	grant := mustAdmit(t, n, p, ask(60, 60, 1024))
	p.end()
	eventually(t, "the run has ended", func() bool { return len(n.Status().Runs) == 0 })
	if _, err := os.Stat(grant.Dir); !os.IsNotExist(err) {
		t.Errorf("its directory is left: %v", err)
	}
}

// TestChildHoldsTheShare ends a program while another process is connected to the token server.
func TestChildHoldsTheShare(t *testing.T) {
	n := newNode(t, tempDir(t))
	p := newProgram(t)
	child, err := tokenclient.Dial(mustAdmit(t, n, p, ask(60, 60, 1024)).Dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	p.end()
	eventually(t, "the end is noticed", func() bool {
		n.runs.mu.Lock()
		defer n.runs.mu.Unlock()
		return n.runs.runs[0].dead
	})
	if len(n.Status().Runs) != 1 {
		t.Error("the share is gone, and the child has it")
	}
	child.Close()
	eventually(t, "the run has ended", func() bool { return len(n.Status().Runs) == 0 })
}

func TestWaitersComeInOrder(t *testing.T) {
	n := newNode(t, tempDir(t), func(o *Options) { o.Devices = o.Devices[:1] })
	first := newProgram(t)
	mustAdmit(t, n, first, ask(60, 60, 1024))
	request := ask(60, 60, 1024)
	request.Wait = true
	granted := make(chan int)
	var waiting []*program
	for i := range 2 {
		p := newProgram(t)
		waiting = append(waiting, p)
		queued := make(chan struct{})
		go func() {
			_, refusal := n.granter.admit(t.Context(), p.Process, request, func(*control.Refusal) { close(queued) })
			if refusal == nil {
				granted <- i
			}
		}()
		<-queued
	}
	first.end()
	if got := <-granted; got != 0 {
		t.Errorf("number %d came first", got)
	}
	waiting[0].end()
	if got := <-granted; got != 1 {
		t.Errorf("then number %d", got)
	}
}

// TestWaiterHearsOfChange: a request that waits for memory hears that it waits for time once the memory is free.
func TestWaiterHearsOfChange(t *testing.T) {
	n := newNode(t, tempDir(t), func(o *Options) { o.Devices = o.Devices[:1] })
	large, busy := newProgram(t), newProgram(t)
	mustAdmit(t, n, large, ask(10, 10, 60<<10))
	mustAdmit(t, n, busy, ask(60, 60, 1024))
	request := ask(60, 60, 40<<10)
	request.Wait = true
	reasons, done := make(chan string, 10), make(chan *control.Refusal)
	p := newProgram(t)
	go func() {
		_, refusal := n.granter.admit(t.Context(), p.Process, request, func(why *control.Refusal) { reasons <- why.Reason })
		done <- refusal
	}()
	for _, test := range []struct {
		want  string
		fixed *program
	}{{"insufficient GPU memory", large}, {"insufficient GPU SM-time", busy}} {
		eventually(t, "it hears of "+test.want, func() bool { return len(reasons) > 0 })
		if got := <-reasons; got != test.want {
			t.Errorf("it waits for %q, want %q", got, test.want)
		}
		test.fixed.end()
	}
	if refusal := <-done; refusal != nil || len(reasons) > 0 {
		t.Errorf("%+v; %d more reasons", refusal, len(reasons))
	}
}

func TestWaiterLeaves(t *testing.T) {
	n := newNode(t, tempDir(t), func(o *Options) { o.Devices = o.Devices[:1] })
	first := newProgram(t)
	mustAdmit(t, n, first, ask(60, 60, 1024))
	request := ask(60, 60, 1024)
	request.Wait = true
	ctx, cancel := context.WithCancel(t.Context())
	if _, refusal := n.granter.admit(ctx, newProgram(t).Process, request, func(*control.Refusal) { cancel() }); refusal == nil {
		t.Fatal("it was admitted")
	}
	first.end()
	eventually(t, "all is free", func() bool { return len(n.Status().Runs) == 0 })
}

// TestAnotherAgentTakesOver starts an agent where another one was: runs stay, with their devices and their shares.
func TestAnotherAgentTakesOver(t *testing.T) {
	dir := tempDir(t)
	old := newNode(t, dir)
	lives, dies := newProgram(t), newProgram(t)
	mustAdmit(t, old, lives, ask(60, 60, 1024))
	mustAdmit(t, old, dies, ask(50, 50, 2048))
	before := old.Status()
	old.Close()
	n := newNode(t, dir)
	if diff := cmp.Diff(before, n.Status(), cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })); diff != "" {
		t.Errorf("the new agent knows something else:\n%s", diff)
	}
	dies.end()
	eventually(t, "the one that ended is gone", func() bool { return len(n.Status().Runs) == 1 })
	n.Close()
	lives.end()
	last := newNode(t, dir)
	eventually(t, "what ended without an agent is gone", func() bool { return len(last.Status().Runs) == 0 })
}

// TestDeviceOfRunIsLost: an agent that finds only one of the two devices of a run does not give that one to others while the program lives. An
// agent that finds none keeps the record of the run for one that does.
func TestDeviceOfRunIsLost(t *testing.T) {
	lose := func(o *Options) { o.Devices = o.Devices[1:] }
	dir := tempDir(t)
	n := newNode(t, dir)
	p := newProgram(t)
	request := ask(200, 100, 4096)
	request.Isolation = "exclusive"
	grant := mustAdmit(t, n, p, request)
	n.Close()
	other := newNode(t, dir, func(o *Options) { o.Devices[0].UUID, o.Devices = "GPU-2", o.Devices[:1] })
	if _, err := os.Stat(filepath.Join(grant.Dir, recordName)); err != nil || len(other.Status().Runs) != 0 {
		t.Errorf("without its devices: %d runs, %v", len(other.Status().Runs), err)
	}
	other.Close()
	n = newNode(t, dir, lose)
	runs := n.Status().Runs
	if len(runs) != 1 || len(runs[0].VGPUs) != 1 || runs[0].VGPUs[0].Device != "GPU-1" {
		t.Fatalf("with one of its devices: %+v", runs)
	}
	if _, refusal := newProgram(t).admit(n, ask(30, 50, 8192)); refusal == nil {
		t.Error("its device is given to another run")
	}
	p.end()
	eventually(t, "the run has ended", func() bool { return len(n.Status().Runs) == 0 })
	mustAdmit(t, n, newProgram(t), ask(30, 50, 8192))
	if _, err := os.Stat(grant.Dir); !os.IsNotExist(err) {
		t.Errorf("its directory is left: %v", err)
	}
}

func TestBrokenRecordIsNoRun(t *testing.T) {
	dir := tempDir(t)
	for name, text := range map[string]string{"a": "{", "b": "{}", "c": `{"ID": "x"}`} {
		if err := os.MkdirAll(filepath.Join(dir, "runs", name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "runs", name, recordName), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "runs", "stray"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	n := newNode(t, dir)
	left, err := os.ReadDir(filepath.Join(dir, "runs"))
	if len(n.Status().Runs) != 0 || len(left) != 1 || left[0].Name() != "stray" || err != nil {
		t.Errorf("%d runs, %d directories, %v", len(n.Status().Runs), len(left), err)
	}
}

// TestOtherVersionIsRefused: an agent does not start beside runs that it cannot read, since they may hold devices, and leaves their records.
func TestOtherVersionIsRefused(t *testing.T) {
	dir := tempDir(t)
	run := filepath.Join(dir, "runs", "7gfj3kma")
	text := strings.Replace(readGolden(t), `"version":1`, `"version":2`, 1)
	if err := errors.Join(os.MkdirAll(run, 0o755), os.WriteFile(filepath.Join(run, recordName), []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
	o := nodeOptions(dir)
	_, err := New(o)
	for _, want := range []string{"version 2 is not supported, only version 1 is", "remove that directory", run} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if left, err := os.ReadFile(filepath.Join(run, recordName)); err != nil || string(left) != text {
		t.Errorf("the record has changed: %q, %v", left, err)
	}
	if err := os.RemoveAll(run); err != nil {
		t.Fatal(err)
	}
	newNode(t, dir)
}

func TestDeadProcessGetsNothing(t *testing.T) {
	n := newNode(t, tempDir(t))
	p := newProgram(t)
	p.end()
	if grant, _ := p.admit(n, ask(10, 10, 1)); grant != nil {
		t.Errorf("a dead process got %+v", grant)
	}
	if left, _ := os.ReadDir(n.server.runsDir()); len(left) != 0 {
		t.Error("a directory is left")
	}
}

// TestOtherUser: processes of another user do not get at a share, cgroup or not.
func TestOtherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("root is missing: nobody else can be played")
	}
	n := newNode(t, tempDir(t))
	owner := newProgram(t)
	owner.UID = 1000
	mustAdmit(t, n, owner, ask(10, 10, 1))
	for uid, want := range map[uint32]bool{1000: true, 1001: false} {
		t.Run(fmt.Sprint(uid), func(t *testing.T) {
			if err := n.first().admit(process.Process{PID: os.Getpid(), UID: uid}); (err == nil) != want {
				t.Errorf("user %d: %v", uid, err)
			}
		})
	}
}

// TestListedDevices: of what the configuration lists, what is there is served.
func TestListedDevices(t *testing.T) {
	list := func(devices ...string) func(*Options) { return func(o *Options) { o.Config.Devices = devices } }
	n := newNode(t, tempDir(t), list("GPU-1", "GPU-9"))
	if d := n.Status().Devices; len(d) != 1 || d[0].UUID != "GPU-1" {
		t.Errorf("devices: %+v", d)
	}
	o := n.Options
	list("GPU-9")(&o)
	if _, err := New(o); err == nil || !strings.Contains(err.Error(), "devices: ") {
		t.Errorf("none of the devices is there: %v", err)
	}
}
