package agent

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/injection"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
)

// withDrain returns an option that puts gshare-drain beside the hook.
func withDrain(t *testing.T) func(*Options) {
	t.Helper()
	return func(o *Options) {
		file := filepath.Join(filepath.Dir(o.Config.Kubernetes.Hook), injection.DrainProgram)
		if out, err := exec.Command("gcc", "-static", "-o", file, "../../hook/drain/drain.c").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// drain runs gshare-drain in a container. It returns whether it succeeded, and what it says.
func (c *processFixture) drain(pod, container string) (bool, string) {
	c.fixture.t.Helper()
	dir := filepath.Join(c.fixture.dir, "drain")
	cmd := exec.Command("sh", "-c", `read line; exec "$0" "$1" 2>&1`, filepath.Join(dir, injection.DrainProgram), filepath.Join(dir, injection.DrainSocket))
	p := launch(c.fixture.t, cmd)
	c.put(p, pod, container)
	fmt.Fprintln(p.input)
	<-p.ended
	text, _ := io.ReadAll(p.lines)
	return p.status.ExitStatus() == 0, string(text)
}

// TestDrainBeforeStop: gshare-drain ends the CUDA work of the container in which it runs, and of no other container.
func TestDrainBeforeStop(t *testing.T) {
	t.Parallel()
	c := newProcessFixture(t, config.ReportUnmanaged, withMPS(t), withDrain(t))
	r := c.fixture
	c.granted("a", "GPU-0", 30, 50)
	c.granted("b", "GPU-0", 30, 50)
	leaving, worker := c.client("a", "main", "GPU-0"), c.client("a", "main", "GPU-0")
	others := []*program{c.client("a", "sidecar", "GPU-0"), c.client("b", "main", "GPU-0")}
	if ok, text := c.drain("a", "main"); !ok {
		t.Errorf("drain: %s", text)
	}
	for _, p := range []*program{leaving, worker} {
		if line, err := p.lines.ReadString('\n'); err != nil || line != "mps says 810\n" {
			t.Errorf("%q, %v", line, err)
		}
		if !p.alive() {
			t.Error("a process was killed")
		}
	}
	for _, test := range []struct{ pod, container, want string }{
		{"", "", "no container"}, {"unknown", "main", ""},
	} {
		if ok, text := c.drain(test.pod, test.container); ok != (test.want == "") || !strings.Contains(text, test.want) {
			t.Errorf("drain in %s of pod %q: %t, %q", test.container, test.pod, ok, text)
		}
	}
	for _, p := range others {
		said := make(chan string, 1)
		go func(lines *bufio.Reader) {
			line, _ := lines.ReadString('\n')
			said <- line
		}(p.lines)
		select {
		case line := <-said:
			t.Errorf("the process of another container was sent %q", line)
		case <-time.After(100 * time.Millisecond):
		}
	}
	if n := testutil.ToFloat64(r.Agent.metrics.drains.WithLabelValues(beforeStop, "ended")); n != 2 {
		t.Errorf("%v containers counted, not that of pod a and that of an unknown pod", n)
	}
}

// TestDrainHungDaemon: a preStop hook ends soon although the MPS daemon hangs, and says so. Hooks of several containers wait at the same time.
func TestDrainHungDaemon(t *testing.T) {
	t.Parallel()
	c := newProcessFixture(t, config.ReportUnmanaged, withMPS(t), withDrain(t))
	r := c.fixture
	const containers = 8
	for n := range containers {
		c.granted(fmt.Sprint("p", n), "GPU-0", 5, 5)
	}
	daemon := r.daemon("GPU-0")
	if err := syscall.Kill(daemon, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(daemon, syscall.SIGCONT) })
	began := time.Now()
	answers := make(chan string, containers)
	for n := range containers {
		go func() {
			ok, text := c.drain(fmt.Sprint("p", n), "main")
			answers <- fmt.Sprint(ok, text)
		}()
	}
	for range containers {
		if answer := <-answers; !strings.HasPrefix(answer, "false") {
			t.Errorf("drain: %s", answer)
		}
	}
	if took := time.Since(began); took > containers*drainTimeout/2 {
		t.Errorf("the hooks took %v", took)
	}
}

// TestDrainsOfOneContainer: a container is drained at most once in drainInterval, whatever others do, and is forgotten after drainMemory.
func TestDrainsOfOneContainer(t *testing.T) {
	d := &drains{last: map[cgroup.Container]time.Time{}}
	a, b, start := cgroup.Container{ID: "a"}, cgroup.Container{ID: "b"}, time.Unix(100, 0)
	for _, step := range []struct {
		of    cgroup.Container
		after time.Duration
		may   bool
	}{{a, 0, true}, {a, 0, false}, {b, drainInterval / 2, true}, {a, drainInterval - 1, false}, {a, drainInterval, true}, {a, drainInterval + 1, false}} {
		if may := d.begin(step.of, start.Add(step.after)); may != step.may {
			t.Errorf("%s after %v: %t", step.of.ID, step.after, may)
		}
	}
	if d.begin(a, start.Add(drainMemory+drainInterval)); len(d.last) != 1 {
		t.Errorf("remembers %v", d.last)
	}
}

// TestKilledUndrained: the agent reports a container that a signal or a lack of memory has ended, once, unless its work was ended before, it exited by
// itself, or it has no share.
func TestKilledUndrained(t *testing.T) {
	t.Parallel()
	c := newProcessFixture(t, config.ReportUnmanaged, withMPS(t), withDrain(t))
	r := c.fixture
	state := func(id, reason string, code int32) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "fake://" + id, Reason: reason, ExitCode: code}}
	}
	ended := func(uid string, last ...v1.ContainerState) {
		pod := running(placed(uid, "GPU-0", 5, 5))
		for _, s := range last {
			pod.Status.ContainerStatuses[0].LastTerminationState = s
		}
		r.kubelet.AddPod(pod)
	}
	for _, uid := range []string{"oom", "crashed", "exited", "drained"} {
		c.granted(uid, "GPU-0", 5, 5)
	}
	ended("stranger", state("stranger-main", "OOMKilled", 137))
	if ok, text := c.drain("drained", "main"); !ok {
		t.Fatal(text)
	}
	ended("drained", state("drained-main", "Error", 137))
	ended("exited", state("exited-main", "Error", 1))
	ended("oom", state("oom-main", "OOMKilled", 137))
	ended("crashed", state("crashed-main", "Error", 139))
	killed := func(by string) float64 { return testutil.ToFloat64(r.Agent.metrics.killed.WithLabelValues(by)) }
	r.wait("the report of both", func() bool { return killed("lack of memory") > 0 && killed("signal 11") > 0 })
	c.wait(10)
	if killed("lack of memory") != 1 || killed("signal 11") != 1 || killed("signal 9") != 0 {
		t.Errorf("counted: %v by memory, %v and %v by signals", killed("lack of memory"), killed("signal 11"), killed("signal 9"))
	}
	r.cluster.mu.Lock()
	defer r.cluster.mu.Unlock()
	var found []string
	for _, e := range r.cluster.events {
		if strings.Contains(e, eventKilled) {
			found = append(found, e)
		}
	}
	if text := strings.Join(found, "\n"); len(found) != 2 || !strings.Contains(text, "ended by lack of memory") || !strings.Contains(text, "ended by signal 11") {
		t.Errorf("events: %q", found)
	}
}

// TestNewlyKilled: each end of a container is found once, and none at the first look of an agent.
func TestNewlyKilled(t *testing.T) {
	end := func(id string, code int32) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: "fake://" + id, ExitCode: code}}
	}
	looks := []struct {
		state, last v1.ContainerState
		want        string
	}{
		{end("b", 137), end("a", 137), ""},
		{end("b", 137), end("a", 137), ""},
		{v1.ContainerState{}, end("b", 137), ""},
		{end("c", 143), end("b", 137), "c by signal 15"},
		{v1.ContainerState{}, end("c", 143), ""},
		{end("d", 0), end("c", 143), ""},
		{end("e", 128), end("d", 0), ""},
	}
	watch := &terminations{}
	for i, look := range looks {
		pod := &v1.Pod{Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{Name: "main", State: look.state, LastTerminationState: look.last}}}}
		got := ""
		for _, k := range watch.newlyKilled([]*v1.Pod{pod}) {
			got += k.id + " by " + k.by
		}
		if got != look.want {
			t.Errorf("look %d: %q, not %q", i, got, look.want)
		}
	}
}
