package standalone

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
)

// withMPS lets the node run the fake MPS.
func withMPS(t *testing.T) func(*Options) {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	dir := tempDir(t)
	control := filepath.Join(dir, "nvidia-cuda-mps-control")
	if out, err := exec.Command("gcc", "-o", control, "../../../hook/fake/programs/nvidia-cuda-mps-control.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return func(o *Options) {
		o.MPS = mps.Daemons{Dir: filepath.Join(dir, "pipes"), Program: control, Simulated: true}
	}
}

// served says that a device has a daemon.
func (n *Node) served(device string) bool {
	_, err := os.Stat(filepath.Join(n.MPS.Pipe(device), "control"))
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
	if !n.served("GPU-1") || n.served("GPU-0") || grant.Truth.SMs != "MPS, 32 of 108 SMs" {
		t.Errorf("daemons: %v and %v; %+v", n.served("GPU-0"), n.served("GPU-1"), grant.Truth)
	}
	p.end()
	eventually(t, "the daemon ends", func() bool { return !n.served("GPU-1") })
}

// TestMPSThatFails: a program that does not wait for room is told why, one that does stays in the queue.
func TestMPSThatFails(t *testing.T) {
	n := newNode(t, tempDir(t), withMPS(t), func(o *Options) { o.MPS.Program = "/bin/false" })
	if _, refusal := newProgram(t).admit(n, ask(30, 50, 1024)); refusal == nil || !strings.Contains(refusal.Reason, "MPS does not serve") {
		t.Errorf("%+v", refusal)
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
	eventually(t, "it is seen", func() bool { return len(n.mps.Bare("GPU-0")) == 1 })
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
