package agent

import (
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/mps"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// TestStranger: depending on the policy, a process of a pod without a share is ignored, reported, or killed.
func TestStranger(t *testing.T) {
	t.Parallel()
	for _, policy := range policies {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			c := newProcessFixture(t, policy)
			c.plain("s", "main")
			c.granted("a", "GPU-1", 60, 70)
			c.granted("w", "GPU-0", 100, 100)
			p, friend := c.start("s", "main", "GPU-1"), c.start("w", "main", "GPU-0")
			switch policy {
			case config.IgnoreUnmanaged:
				until := c.fixture.kubelet.Lists.Load() + 10
				c.fixture.wait("observations", func() bool { return c.fixture.kubelet.Lists.Load() >= until })
				c.fixture.wait("the slice to be offered", func() bool { return c.offered("GPU-1") })
				if c.lists.Load() > 0 || c.fixture.cluster.hasEvent("GPUUnmanagedProcess") {
					t.Errorf("the driver was called %d times; events %v", c.lists.Load(), c.fixture.cluster.events)
				}
			case config.ReportUnmanaged:
				c.enforced("a", "also used by pod default/pod-s", true)
				c.wait(10)
			case config.EndUnmanaged:
				p.waitKilled()
				c.leave()
				c.fixture.wait("the slice to be offered", func() bool { return c.offered("GPU-1") })
			}
			if p.alive() != (policy != config.EndUnmanaged) {
				t.Errorf("stranger alive: %v", p.alive())
			}
			if told := c.fixture.cluster.hasEvent(fmt.Sprintf("pod-s GPUUnmanagedProcess process %d ", p.Process.Pid)); told != (policy != config.IgnoreUnmanaged) {
				t.Errorf("events %v", c.fixture.cluster.events)
			}
			// An agent that lists no processes must not look like one that has stopped listing them: GShareBlind would fire for ever.
			if exported := strings.Contains(scrape(c.fixture), "\ngshare_node_watch_timestamp_seconds"); exported != (policy != config.IgnoreUnmanaged) {
				t.Errorf("the time of the last list is exported: %v", exported)
			}
			if !friend.alive() || c.fixture.cluster.hasEvent("pod-w GPU") {
				t.Errorf("process with a share alive: %v; events %v", friend.alive(), c.fixture.cluster.events)
			}
		})
	}
}

// TestUsedDevice: a device that a stranger uses is not offered, and is refused to pods already bound to it, until the stranger is gone.
// Containers that are running there continue, and may restart.
func TestUsedDevice(t *testing.T) {
	t.Parallel()
	c := newProcessFixture(t, config.ReportUnmanaged)
	running := c.fixture.pod("a", "GPU-1", 20, 70)
	c.fixture.mustCreate("a", running, "GPU-1")
	c.start("", "", "GPU-1") // a process of the host suffices
	bound := c.fixture.pod("b", "GPU-1", 20, 70)
	c.fixture.wait("the slice to be marked as used", func() bool { return !c.offered("GPU-1") })
	if spec, err := c.fixture.create("b", bound); err == nil {
		t.Errorf("started beside a stranger: %s", spec)
	}
	if !c.fixture.cluster.hasEvent("pod-b " + string(grant.InUse)) {
		t.Errorf("events %v", c.fixture.cluster.events)
	}
	c.fixture.mustCreate("a", running, "GPU-1")
	c.fixture.mustCreate("c", c.fixture.pod("c", "GPU-0", 20, 70), "GPU-0")
	c.enforced("a", "processes outside of pods", true)
	if !c.offered("GPU-0") {
		t.Error("the other device is not offered")
	}
	c.leave()
	c.fixture.wait("the slice to be offered", func() bool { return c.offered("GPU-1") })
	c.fixture.mustCreate("b", bound, "GPU-1")
	c.enforced("a", "processes outside of pods", false)
}

// TestUnhooked: a process without a session on a shared slice is reported or killed after its grace period; one with a session is not.
func TestUnhooked(t *testing.T) {
	t.Parallel()
	for _, policy := range policies[1:] {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			c := newProcessFixture(t, policy)
			c.granted("a", "GPU-0", 20, 70)
			hooked := launch(t, exec.Command(os.Args[0]))
			c.put(hooked, "a", "main")
			hooked.connect(c.fixture.directory("pod-a"))
			c.use(hooked, "GPU-0")
			unhooked := c.start("a", "main", "GPU-0")
			if policy == config.EndUnmanaged {
				unhooked.waitKilled()
			} else {
				c.enforced("a", "without the hook", true)
			}
			c.wait(15) // longer than the grace period
			if !hooked.alive() || unhooked.alive() != (policy == config.ReportUnmanaged) {
				t.Errorf("process with a session alive: %v; without: %v", hooked.alive(), unhooked.alive())
			}
			if !c.fixture.cluster.hasEvent(fmt.Sprintf("pod-a GPUUnhooked process %d ", unhooked.Process.Pid)) || c.fixture.cluster.hasEvent("GPUUnmanagedProcess") {
				t.Errorf("events %v", c.fixture.cluster.events)
			}
			if !c.offered("GPU-0") {
				t.Error("an unhooked process marks its slice as used")
			}
		})
	}
}

// TestTrespasser: a share is valid for its device and its container only.
func TestTrespasser(t *testing.T) {
	t.Parallel()
	c := newProcessFixture(t, config.EndUnmanaged)
	c.granted("a", "GPU-0", 100, 100)
	pod := placed("a", "GPU-0", 100, 100)
	pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "proxy"})
	c.fixture.kubelet.AddPod(running(pod))
	friend, trespasser, sidecar := c.start("a", "main", "GPU-0"), c.start("a", "main", "GPU-1"), c.start("a", "proxy", "GPU-0")
	trespasser.waitKilled()
	sidecar.waitKilled()
	c.wait(5)
	if !friend.alive() || !c.fixture.cluster.hasEvent("pod-a GPUWrongDevice") || !c.fixture.cluster.hasEvent("pod-a GPUUnmanagedProcess") {
		t.Errorf("process with a share alive: %v; events %v", friend.alive(), c.fixture.cluster.events)
	}
}

// TestOtherPlugin: a device that another plugin has allocated is neither offered nor granted while its pod exists, and the pod's processes
// are not killed.
func TestOtherPlugin(t *testing.T) {
	t.Parallel()
	c := newProcessFixture(t, config.EndUnmanaged)
	c.plain("n", "main")
	c.fixture.kubelet.AllocateElsewhere("n", "main", "nvidia.com/gpu", "GPU-1")
	guest := c.start("n", "main", "GPU-1")
	bound := c.fixture.pod("b", "GPU-1", 20, 70)
	c.fixture.wait("the slice to be marked as used", func() bool { return !c.offered("GPU-1") })
	if spec, err := c.fixture.create("b", bound); err == nil {
		t.Errorf("started on another plugin's device: %s", spec)
	}
	if !c.fixture.cluster.hasEvent("pod-b GPUSliceInUse slice GPU-1 is used by pod default/pod-n (nvidia.com/gpu)") {
		t.Errorf("events %v", c.fixture.cluster.events)
	}
	c.wait(5)
	if !guest.alive() || c.fixture.cluster.hasEvent("pod-n GPU") {
		t.Errorf("process of the other plugin's container alive: %v; events %v", guest.alive(), c.fixture.cluster.events)
	}
	c.leave()
	c.fixture.kubelet.RemovePod("n")
	c.fixture.wait("the slice to be offered", func() bool { return c.offered("GPU-1") })
	c.fixture.mustCreate("b", bound, "GPU-1")
}

func TestNotOwned(t *testing.T) {
	t.Parallel()
	c := newProcessFixture(t, config.EndUnmanaged, func(o *Options) { o.Config.Devices = []string{"0"} })
	c.plain("n", "main")
	c.fixture.kubelet.AllocateElsewhere("n", "main", "nvidia.com/gpu", "GPU-1")
	guest, stranger := c.start("n", "main", "GPU-1"), c.start("n", "main", "GPU-0")
	stranger.waitKilled()
	c.wait(5)
	if !guest.alive() {
		t.Error("a process on another plugin's device was killed")
	}
	if inv, err := c.fixture.cluster.Published(t.Context()); err != nil || len(inv.Slices) != 1 || inv.Slices[0].ID != "GPU-0" {
		t.Errorf("published %+v, %v", inv, err)
	}
}

// TestHungDriver: nothing waits for a driver that hangs while listing processes, and its late response is used.
func TestHungDriver(t *testing.T) {
	t.Parallel()
	hung := make(chan struct{})
	c := newProcessFixture(t, config.EndUnmanaged, func(o *Options) { o.Source.(*processFixture).hung = hung })
	c.plain("s", "main")
	p := c.start("s", "main", "GPU-1")
	c.fixture.mustCreate("a", c.fixture.pod("a", "GPU-1", 20, 70), "GPU-1")
	c.fixture.kubelet.AllocateElsewhere("s", "main", "nvidia.com/gpu", "GPU-0")
	c.fixture.wait("the slice to be marked as used", func() bool { return !c.offered("GPU-0") }) // the kubelet's records are examined nevertheless
	c.fixture.wait("metric", func() bool { return !strings.Contains(scrape(c.fixture), "gshare_node_watch_failures_total 0\n") })
	if c.lists.Load() != 0 || !p.alive() || c.fixture.healthy() != nil {
		t.Errorf("the driver was called %d times; alive %v; %v", c.lists.Load(), p.alive(), c.fixture.healthy())
	}
	close(hung)
	p.waitKilled()
	c.fixture.wait("metric", func() bool {
		return strings.Contains(scrape(c.fixture), `gshare_node_unmanaged_processes_ended_total{kind="unmanaged"} 1`)
	})
}

func scrape(r *fixture) string {
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// TestNeverKilled: a process without a grant is not killed if its container has device IDs according to the kubelet, since the agent may have
// lost the grant. Processes of the host, and of containers that the kubelet does not know, are not killed either. A stranger beside them
// is.
func TestNeverKilled(t *testing.T) {
	t.Parallel()
	c := newProcessFixture(t, config.EndUnmanaged)
	c.granted("a", "GPU-0", 20, 70)
	c.plain("s", "main")
	c.fixture.stop()
	for _, dir := range []string{"cdi", "grants"} {
		if err := os.RemoveAll(filepath.Join(c.fixture.dir, dir)); err != nil {
			t.Fatal(err)
		}
	}
	c.fixture.kubelet.Hide.Store(true) // the kubelet has no record yet
	c.fixture.start()
	spared := []*program{c.start("a", "main", "GPU-0"), c.start("", "", "GPU-0"), c.start("unknown", "main", "GPU-0")}
	c.start("s", "main", "GPU-0").waitKilled()
	c.wait(10)
	for i, p := range spared {
		if !p.alive() {
			t.Errorf("process %d was killed", i)
		}
	}
	if !c.fixture.cluster.hasEvent("pod-a GPUUnmanagedProcess") {
		t.Errorf("events %v", c.fixture.cluster.events)
	}
}

// useOutside starts the test binary outside of pods under a name, as a program that uses a slice.
func (c *processFixture) useOutside(name, slice string) {
	t := c.fixture.t
	t.Helper()
	file := filepath.Join(c.fixture.dir, name)
	if err := os.Link(os.Args[0], file); err != nil {
		t.Skip("the test binary is on another file system than temporary files: ", err)
	}
	p := launch(t, exec.Command(file))
	p.connect("") // it is now executing the file
	c.use(p, slice)
}

// TestMPSServer: the MPS server that the agent started is not a stranger, but the same program under another name is.
func TestMPSServer(t *testing.T) {
	t.Parallel()
	c := newProcessFixture(t, config.ReportUnmanaged)
	c.useOutside(mps.ServerProgram, "GPU-0")
	c.useOutside("somebody", "GPU-1")
	c.fixture.wait("the slice to be marked as used", func() bool { return !c.offered("GPU-1") })
	c.wait(5)
	if !c.offered("GPU-0") {
		t.Error("the MPS server counts as a stranger")
	}
}

// TestReusedPID: a process is not killed if its start time or pod differs from what was observed.
func TestReusedPID(t *testing.T) {
	t.Parallel()
	c := newProcessFixture(t, config.IgnoreUnmanaged)
	p := c.start("s", "main", "GPU-0")
	g := newGuard(c.fixture.Agent, func() {})
	startTime, _, ok := g.identityOf(p.Process.Pid)
	if !ok {
		t.Fatal("the process is not identified")
	}
	right := watchdog.Process{PID: p.Process.Pid, StartTime: startTime, Pod: "s"}
	later, moved, outside := right, right, right
	later.StartTime++
	moved.Pod = "other"
	outside.Pod = ""
	for _, wrong := range []watchdog.Process{later, moved, outside, {PID: 1 << 30, Pod: "s"}} {
		if err := g.kill(t.Context(), wrong); err == nil || !p.alive() {
			t.Fatalf("%+v: %v; alive: %v", wrong, err, p.alive())
		}
	}
	if err := g.kill(t.Context(), right); err != nil {
		t.Fatal(err)
	}
	p.waitKilled()
}

// TestUsers: the texts about users of a slice are short, and do not depend on PIDs or on the order of processes.
func TestUsers(t *testing.T) {
	t.Parallel()
	if got := joinUsers([]string{"d", "b", "a", "c", "b"}); got != "a, b, c and 1 more" {
		t.Error(got)
	}
	if got := joinUsers([]string{"b", "a"}); got != "a, b" {
		t.Error(got)
	}
	found := []watchdog.Finding{
		{Process: watchdog.Process{PID: 2, Pod: "b"}, Kind: watchdog.Unhooked}, {Process: watchdog.Process{PID: 1, Pod: "a"}, Kind: watchdog.Unhooked},
		{Process: watchdog.Process{PID: 3, Pod: "b"}, Kind: watchdog.Unhooked}, {Process: watchdog.Process{PID: 4}, Kind: watchdog.OutsidePods},
	}
	before := reportable(found)
	found[0].PID = 9
	slices.Reverse(found)
	if after := reportable(found); len(after) != 2 || !slices.Equal(before, after) {
		t.Errorf("%v, then %v", before, after)
	}
}

// TestFind: containers of all types are found by their ID. Their pod is found even if the kubelet does not know the ID yet.
func TestFind(t *testing.T) {
	t.Parallel()
	pod := running(placed("a", "GPU-0", 20, 70))
	pods := append([]*v1.Pod{running(placed("b", "GPU-0", 20, 70))}, pod)
	pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses[0])
	pod.Status.InitContainerStatuses[0].Name, pod.Status.InitContainerStatuses[0].ContainerID = "sidecar", "cri-o://a-sidecar"
	for name, test := range map[string]struct {
		in        cgroup.Container
		pod, name string
	}{
		"container":      {cgroup.Container{PodUID: "a", ID: "a-main"}, "a", "main"},
		"init container": {cgroup.Container{PodUID: "a", ID: "a-sidecar"}, "a", "sidecar"},
		"unknown ID":     {cgroup.Container{PodUID: "a", ID: "b-main"}, "a", ""},
		"unknown pod":    {cgroup.Container{PodUID: "c", ID: "a-main"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pod, name := findContainer(pods, test.in)
			if pod == nil != (test.pod == "") || pod != nil && string(pod.UID) != test.pod || name != test.name {
				t.Errorf("found %v, %q", pod, name)
			}
		})
	}
	if !hasDeviceIDs(pod, "main") || hasDeviceIDs(pod, "sidecar") || !hasDeviceIDs(pod, "") || !hasDeviceIDs(nil, "") || !kube.RequestsShare(pod) {
		t.Error("hasDeviceIDs is wrong")
	}
}

// TestWhyUnhooked: status and event of a pod name why a program on its slice has no hook.
func TestWhyUnhooked(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed")
	}
	compile := exec.Command("gcc", "-static", "-x", "c", "-", "-o", filepath.Join(t.TempDir(), "static"))
	compile.Stdin = strings.NewReader("#include <unistd.h>\nint main(void) { char c; return read(0, &c, 1) != 1; }\n")
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	loader := filepath.Join(t.TempDir(), "ld-musl-x86_64.so.1")
	if err := os.WriteFile(loader, make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, start := range map[string]func() *program{
		"statically linked":            func() *program { return launch(t, exec.Command(compile.Args[len(compile.Args)-1])) },
		"started without libgshare.so": func() *program { return launch(t, exec.Command("cat")) },
		"linked with musl": func() *program {
			p := launch(t, exec.Command(os.Args[0]))
			p.connect("map " + loader)
			return p
		},
	} {
		t.Run(want, func(t *testing.T) {
			c := newProcessFixture(t, config.ReportUnmanaged)
			c.granted("a", "GPU-0", 20, 70)
			p := start()
			c.put(p, "a", "main")
			c.use(p, "GPU-0")
			c.enforced("a", "a process runs without the hook, and is not limited in time: its program is "+want, true)
			c.fixture.wait("an event", func() bool { return c.fixture.cluster.hasEvent("its time is not limited: it is " + want) })
		})
	}
}
