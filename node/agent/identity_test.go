package agent

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/core"
	"github.com/gshare-dev/gshare/node/mps"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// TestIdentityFromCgroup identifies processes by their real cgroups, and kills one.
func TestIdentityFromCgroup(t *testing.T) {
	t.Parallel()
	in := cgroup.Container{PodUID: "01234567-89ab-cdef-0123-456789abcdef", ID: strings.Repeat("a", 64)}
	o := &Options{ContainerOf: containerOf, MPS: mps.Daemons{Simulated: true}}
	g := &guard{Options: o, slices: &sliceRuntime{Options: o, Slices: &core.Slices{Daemons: mps.New(mps.Config{Daemons: o.MPS})}}}
	inside, outside := launch(t, exec.Command(os.Args[0])), launch(t, exec.Command(os.Args[0]))
	inside.move(in)
	if _, c, ok := g.identityOf(outside.Process.Pid); !ok || c == in {
		t.Errorf("outside: %+v, %v", c, ok)
	}
	startTime, c, ok := g.identityOf(inside.Process.Pid)
	if !ok || c != in {
		t.Fatalf("inside: %+v, %v", c, ok)
	}
	if err := g.kill(t.Context(), watchdog.Process{PID: outside.Process.Pid, StartTime: startTime, Pod: in.PodUID}); err == nil || !outside.alive() {
		t.Errorf("outside: %v, alive %v", err, outside.alive())
	}
	if err := g.kill(t.Context(), watchdog.Process{PID: inside.Process.Pid, StartTime: startTime, Pod: in.PodUID}); err != nil {
		t.Fatal(err)
	}
	inside.waitKilled()
	g.own = in
	again := launch(t, exec.Command(os.Args[0]))
	again.move(in)
	if _, _, ok := g.identityOf(again.Process.Pid); ok {
		t.Error("a process of the agent's own container is identified")
	}
}

// move moves a process into a cgroup that is named as a runtime does, in either version of the hierarchy.
func (p *program) move(to cgroup.Container) {
	p.t.Helper()
	pid := strconv.Itoa(p.Process.Pid)
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
		root = "/sys/fs/cgroup/pids" // version 1
	}
	top := filepath.Join(root, "gshare-test-"+pid)
	pod := filepath.Join(top, "pod"+to.PodUID)
	dir := filepath.Join(pod, to.ID)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		p.t.Skip("no cgroup can be made: ", err)
	}
	p.t.Cleanup(func() {
		_ = p.Process.Kill()
		<-p.ended
		for _, d := range []string{dir, pod, top} {
			_ = os.Remove(d)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid), 0o644); err != nil {
		p.t.Skip("no process can be moved: ", err)
	}
}
