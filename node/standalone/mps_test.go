package standalone

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/test/native"
)

// withMPS lets the node run the fake MPS, that of the default branch or of another.
func withMPS(t *testing.T, branch ...string) func(*Options) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	dir := tempDir(t)
	if err := native.Build("../..", dir, native.Driver); err != nil {
		t.Fatal(err)
	}
	control := filepath.Join(dir, filepath.Join(branch...), "nvidia-cuda-mps-control")
	return func(o *Options) {
		o.MPS = mps.Daemons{Dir: filepath.Join(dir, "pipes"), Program: control, Simulated: true, CommandTimeout: time.Minute}
	}
}

// served says that a device has a daemon.
func (n *Node) served(device string) bool {
	_, err := os.Stat(filepath.Join(n.MPS.PipeDir(device), "control"))
	return err == nil
}

// TestMPS: a daemon is there before a program that shares begins, though that does not wait for room; it goes with the last one.
func TestMPS(t *testing.T) {
	n := newNode(t, tempDir(t), withMPS(t))
	whole := newProgram(t)
	mustAdmit(t, n, whole, ask(100, 100, 1024))
	if n.served("GPU-0") || n.served("GPU-1") {
		t.Error("a whole device has a daemon")
	}
	p := newProgram(t)
	grant := mustAdmit(t, n, p, ask(30, 50, 1024))
	if !n.served("GPU-1") || n.served("GPU-0") || grant.Enforcement.SMs != "MPS, 32 of 108 SMs" {
		t.Errorf("daemons: %v and %v; %+v", n.served("GPU-0"), n.served("GPU-1"), grant.Enforcement)
	}
	p.end()
	eventually(t, "the daemon ends", func() bool { return !n.served("GPU-1") })
}

// namespaces is the branch of the fake driver whose MPS has them.
const namespaces = "r615"

// TestNamespaces: with a driver that has them, each run is told the pipes of its own; they go with it, and outlive the agent.
func TestNamespaces(t *testing.T) {
	dir, fake := tempDir(t), withMPS(t, namespaces)
	n := newNode(t, dir, fake)
	programs, pipes := map[string]*program{}, map[string]string{}
	for _, name := range []string{"a", "b"} {
		programs[name] = newProgram(t)
		grant := mustAdmit(t, n, programs[name], ask(30, 50, 1024))
		pipes[name] = filepath.Join(n.MPS.PipeDir("GPU-0"), "shares", grant.ID)
		if !slices.Contains(grant.Environment, "CUDA_MPS_PIPE_DIRECTORY="+pipes[name]) || grant.Enforcement.SMs != "MPS namespace, 32 of 108 SMs" {
			t.Errorf("%+v", grant)
		}
		if missing := strings.Join(grant.Enforcement.Missing, "; "); !strings.Contains(missing, "names other pipes in its environment") {
			t.Errorf("what is missing: %s", missing)
		}
	}
	n.Close()
	newNode(t, dir, fake)
	programs["a"].end()
	eventually(t, "a namespace goes", func() bool { return !there(pipes["a"]) })
	if !there(pipes["b"]) {
		t.Error("the other's has gone with it")
	}
}

func there(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// TestMPSThatFails: a program that does not wait for room is told at the end of its patience what is wrong by then.
func TestMPSThatFails(t *testing.T) {
	broken := func(o *Options) { o.MPS.Program = "/bin/false" }
	refusing := func(o *Options) { // the second step of making a namespace
		log := filepath.Join(o.MPS.Dir, "log", "GPU-0")
		if err := errors.Join(os.MkdirAll(log, 0o755), os.WriteFile(filepath.Join(log, "refuse"), []byte("namespace set"), 0o644)); err != nil {
			t.Error(err)
		}
	}
	for want, options := range map[string][]func(*Options){
		"MPS does not accept":                               {withMPS(t), broken},
		"the share's namespace cannot be created: MPS daem": {withMPS(t, namespaces), refusing},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			for timeout := 3 * time.Second; ; timeout *= 4 { // a busy machine may not get as far in the first one
				n := newNode(t, tempDir(t), append(slices.Clone(options), func(o *Options) { o.timing.mpsTimeout = timeout })...)
				_, refusal := newProgram(t).admit(n, ask(30, 50, 1024))
				if refusal != nil && strings.Contains(refusal.Reason, want) {
					return
				}
				if refusal == nil || timeout > time.Minute {
					t.Fatalf("%+v", refusal)
				}
			}
		})
	}
}

// onDevice plays the driver: processes on a device.
type onDevice struct {
	gpu.Source
	pids []int
}

func (o onDevice) Processes() (all []gpu.Process, _ error) {
	for _, pid := range o.pids {
		all = append(all, gpu.Process{PID: pid, Slice: "GPU-0"})
	}
	return all, nil
}

// TestWithoutMPS: a stranger without MPS keeps programs out, until it has ended.
func TestWithoutMPS(t *testing.T) {
	stranger := newProgram(t)
	n := newNode(t, tempDir(t), withMPS(t), func(o *Options) {
		o.Devices, o.Source = o.Devices[:1], onDevice{pids: []int{stranger.PID}}
	})
	mustAdmit(t, n, newProgram(t), ask(30, 50, 1024)) // it takes two looks to be sure
	eventually(t, "it is seen", func() bool { return len(n.server.slices.Daemons.NonMPSProcesses("GPU-0")) == 1 })
	queued := newProgram(t)
	done := make(chan bool)
	go func() {
		_, refusal := queued.admit(n, ask(30, 50, 1024))
		done <- refusal == nil
	}()
	if err := syscall.Kill(stranger.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	stranger.end()
	if !<-done {
		t.Error("refused, though the stranger has ended")
	}
}
