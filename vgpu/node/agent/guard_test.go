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

	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/node/cgroup"
	"github.com/gshare-dev/gshare/vgpu/node/grant"
	"github.com/gshare-dev/gshare/vgpu/node/mps"
	"github.com/gshare-dev/gshare/vgpu/watchdog"
)

// TestStranger: by policy a process of a pod without a share is nobody's business, reported, or ended.
func TestStranger(t *testing.T) {
	t.Parallel()
	for _, policy := range policies {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t, policy)
			c.plain("s", "main")
			c.granted("a", "GPU-1", 60, 70)
			c.granted("w", "GPU-0", 100, 100)
			p, friend := c.start("s", "main", "GPU-1"), c.start("w", "main", "GPU-0")
			switch policy {
			case config.IgnoreStrangers:
				until := c.rig.kubelet.Lists.Load() + 10
				c.rig.wait("look", func() bool { return c.rig.kubelet.Lists.Load() >= until })
				if c.looks.Load() > 0 || c.rig.cluster.told("GPUStranger") || !c.offered("GPU-1") {
					t.Errorf("%d looks; events %v", c.looks.Load(), c.rig.cluster.events)
				}
			case config.ReportStrangers:
				c.enforced("a", "also used by pod default/pod-s", true)
				c.wait(10)
			case config.EndStrangers:
				p.killed()
				c.leave()
				c.rig.wait("offer", func() bool { return c.offered("GPU-1") })
			}
			if p.alive() != (policy != config.EndStrangers) {
				t.Errorf("the stranger lives: %v", p.alive())
			}
			if told := c.rig.cluster.told(fmt.Sprintf("pod-s GPUStranger process %d ", p.Process.Pid)); told != (policy != config.IgnoreStrangers) {
				t.Errorf("events %v", c.rig.cluster.events)
			}
			if !friend.alive() || c.rig.cluster.told("pod-w GPU") {
				t.Errorf("who has a share lives: %v; events %v", friend.alive(), c.rig.cluster.events)
			}
		})
	}
}

// TestUsedDevice: a device that a stranger uses is not offered, and is refused to those who were bound to it before, until the
// stranger has gone. Who runs there goes on, and may start again.
func TestUsedDevice(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, config.ReportStrangers)
	running := c.rig.pod("a", "GPU-1", 20, 70)
	c.rig.mustCreate("a", running, "GPU-1")
	c.start("", "", "GPU-1") // a process of the host will do
	bound := c.rig.pod("b", "GPU-1", 20, 70)
	c.rig.wait("mark", func() bool { return !c.offered("GPU-1") })
	if spec, err := c.rig.create("b", bound); err == nil {
		t.Errorf("started beside a stranger: %s", spec)
	}
	if !c.rig.cluster.told("pod-b " + string(grant.InUse)) {
		t.Errorf("events %v", c.rig.cluster.events)
	}
	c.rig.mustCreate("a", running, "GPU-1")
	c.rig.mustCreate("c", c.rig.pod("c", "GPU-0", 20, 70), "GPU-0")
	c.enforced("a", "processes outside of pods", true)
	if !c.offered("GPU-0") {
		t.Error("the other device is not offered")
	}
	c.leave()
	c.rig.wait("offer", func() bool { return c.offered("GPU-1") })
	c.rig.mustCreate("b", bound, "GPU-1")
	c.enforced("a", "processes outside of pods", false)
}

// TestUnhooked: a process of a shared slice without a session is reported or ended when its grace is over. With one it lives.
func TestUnhooked(t *testing.T) {
	t.Parallel()
	for _, policy := range policies[1:] {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			c := newCrowd(t, policy)
			c.granted("a", "GPU-0", 20, 70)
			hooked := launch(t, exec.Command(os.Args[0]))
			c.put(hooked, "a", "main")
			hooked.connect(c.rig.directory("pod-a"))
			c.use(hooked, "GPU-0")
			unhooked := c.start("a", "main", "GPU-0")
			if policy == config.EndStrangers {
				unhooked.killed()
			} else {
				c.enforced("a", "without the hook", true)
			}
			c.wait(15) // longer than the grace
			if !hooked.alive() || unhooked.alive() != (policy == config.ReportStrangers) {
				t.Errorf("with a session it lives: %v; without: %v", hooked.alive(), unhooked.alive())
			}
			if !c.rig.cluster.told(fmt.Sprintf("pod-a GPUUnhooked process %d ", unhooked.Process.Pid)) || c.rig.cluster.told("GPUStranger") {
				t.Errorf("events %v", c.rig.cluster.events)
			}
			if !c.offered("GPU-0") {
				t.Error("a container's own process keeps its slice from others")
			}
		})
	}
}

// TestTrespasser: a share of one device is none of another, nor of another container of the pod.
func TestTrespasser(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, config.EndStrangers)
	c.granted("a", "GPU-0", 100, 100)
	pod := placed("a", "GPU-0", 100, 100)
	pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Name: "proxy"})
	c.rig.kubelet.AddPod(running(pod))
	friend, trespasser, sidecar := c.start("a", "main", "GPU-0"), c.start("a", "main", "GPU-1"), c.start("a", "proxy", "GPU-0")
	trespasser.killed()
	sidecar.killed()
	c.wait(5)
	if !friend.alive() || !c.rig.cluster.told("pod-a GPUTrespasser") || !c.rig.cluster.told("pod-a GPUStranger") {
		t.Errorf("friend lives: %v; events %v", friend.alive(), c.rig.cluster.events)
	}
}

// TestOtherPlugin: a device that another plugin has given away is neither offered nor given while its pod lives; that pod is
// left in peace. A device that is not gshare's own is nobody's business.
func TestOtherPlugin(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, config.EndStrangers)
	c.plain("n", "main")
	c.rig.kubelet.Lend("n", "main", "nvidia.com/gpu", "GPU-1")
	guest := c.start("n", "main", "GPU-1")
	bound := c.rig.pod("b", "GPU-1", 20, 70)
	c.rig.wait("mark", func() bool { return !c.offered("GPU-1") })
	if spec, err := c.rig.create("b", bound); err == nil {
		t.Errorf("started on another plugin's device: %s", spec)
	}
	if !c.rig.cluster.told("pod-b GPUSliceInUse slice GPU-1 is used by pod default/pod-n (nvidia.com/gpu)") {
		t.Errorf("events %v", c.rig.cluster.events)
	}
	c.wait(5)
	if !guest.alive() || c.rig.cluster.told("pod-n GPU") {
		t.Errorf("the guest lives: %v; events %v", guest.alive(), c.rig.cluster.events)
	}
	c.leave()
	c.rig.kubelet.RemovePod("n")
	c.rig.wait("offer", func() bool { return c.offered("GPU-1") })
	c.rig.mustCreate("b", bound, "GPU-1")
}

func TestNotOwned(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, config.EndStrangers, func(o *Options) { o.Config.Devices = []string{"0"} })
	c.plain("n", "main")
	c.rig.kubelet.Lend("n", "main", "nvidia.com/gpu", "GPU-1")
	guest, stranger := c.start("n", "main", "GPU-1"), c.start("n", "main", "GPU-0")
	stranger.killed()
	c.wait(5)
	if !guest.alive() {
		t.Error("a process on another plugin's device has been ended")
	}
	if inv, err := c.rig.cluster.Published(t.Context()); err != nil || len(inv.Slices) != 1 || inv.Slices[0].ID != "GPU-0" {
		t.Errorf("published %+v, %v", inv, err)
	}
}

// TestHungDriver: nobody waits for a driver that does not answer who is there; when it does, that is taken in.
func TestHungDriver(t *testing.T) {
	t.Parallel()
	hung := make(chan struct{})
	c := newCrowd(t, config.EndStrangers, func(o *Options) { o.Source.(*crowd).hung = hung })
	c.plain("s", "main")
	p := c.start("s", "main", "GPU-1")
	c.rig.mustCreate("a", c.rig.pod("a", "GPU-1", 20, 70), "GPU-1")
	c.rig.kubelet.Lend("s", "main", "nvidia.com/gpu", "GPU-0")
	c.rig.wait("mark", func() bool { return !c.offered("GPU-0") }) // what the kubelet says is looked at all the same
	c.rig.wait("metric", func() bool { return !strings.Contains(scrape(c.rig), "gshare_node_watch_failures_total 0\n") })
	if c.looks.Load() != 0 || !p.alive() || c.rig.healthy() != nil {
		t.Errorf("%d looks, alive %v, %v", c.looks.Load(), p.alive(), c.rig.healthy())
	}
	close(hung)
	p.killed()
	c.rig.wait("metric", func() bool {
		return strings.Contains(scrape(c.rig), `gshare_node_strangers_ended_total{kind="stranger"} 1`)
	})
}

func scrape(r *rig) string {
	w := httptest.NewRecorder()
	r.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.String()
}

// TestSpared: who has tickets by the kubelet's record is never ended for want of a grant: perhaps it is the agent that has
// forgotten. Nor is the host, nor a container that the kubelet does not know. Their control is a stranger beside them.
func TestSpared(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, config.EndStrangers)
	c.granted("a", "GPU-0", 20, 70)
	c.plain("s", "main")
	c.rig.stop()
	for _, dir := range []string{"cdi", "grants"} {
		if err := os.RemoveAll(filepath.Join(c.rig.dir, dir)); err != nil {
			t.Fatal(err)
		}
	}
	c.rig.kubelet.Hide.Store(true) // the kubelet's record is not there yet
	c.rig.start()
	spared := []*program{c.start("a", "main", "GPU-0"), c.start("", "", "GPU-0"), c.start("unknown", "main", "GPU-0")}
	c.start("s", "main", "GPU-0").killed()
	c.wait(10)
	for i, p := range spared {
		if !p.alive() {
			t.Errorf("process %d has been ended", i)
		}
	}
	if !c.rig.cluster.told("pod-a GPUStranger") {
		t.Errorf("events %v", c.rig.cluster.events)
	}
}

// TestServer: the MPS server that the agent has started is no stranger. The control has another name.
func TestServer(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, config.ReportStrangers)
	for name, slice := range map[string]string{mps.ServerProgram: "GPU-0", "somebody": "GPU-1"} {
		file := filepath.Join(c.rig.dir, name)
		if err := os.Link(os.Args[0], file); err != nil {
			t.Skip("the test binary is on another file system than temporary files: ", err)
		}
		p := launch(t, exec.Command(file))
		p.connect("") // it has begun to run the file
		c.use(p, slice)
	}
	c.rig.wait("mark", func() bool { return !c.offered("GPU-1") })
	c.wait(5)
	if !c.offered("GPU-0") {
		t.Error("the MPS server is taken for a stranger")
	}
}

// TestAnother: what has another start, pod or no pod any more is not ended for what its PID did.
func TestAnother(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, config.IgnoreStrangers)
	p := c.start("s", "main", "GPU-0")
	g := newGuard(c.rig.Agent, func() {})
	startTime, _, ok := g.identityOf(p.Process.Pid)
	if !ok {
		t.Fatal("who is it?")
	}
	right := watchdog.Process{PID: p.Process.Pid, StartTime: startTime, Pod: "s"}
	later, moved, outside := right, right, right
	later.StartTime++
	moved.Pod = "other"
	outside.Pod = ""
	for _, wrong := range []watchdog.Process{later, moved, outside, {PID: 1 << 30, Pod: "s"}} {
		if err := g.kill(t.Context(), wrong); err == nil || !p.alive() {
			t.Fatalf("%+v: %v; it lives: %v", wrong, err, p.alive())
		}
	}
	if err := g.kill(t.Context(), right); err != nil {
		t.Fatal(err)
	}
	p.killed()
}

// TestUsers: what is said of the users of a slice is short and always the same.
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
		{Process: watchdog.Process{PID: 3, Pod: "b"}, Kind: watchdog.Unhooked}, {Process: watchdog.Process{PID: 4}, Kind: watchdog.Outsider},
	}
	before := reported(found)
	found[0].PID = 9
	slices.Reverse(found)
	if after := reported(found); len(after) != 2 || !slices.Equal(before, after) {
		t.Errorf("%v, then %v", before, after)
	}
}

// TestFind: a container is found by its ID whatever it is, and its pod also where the kubelet does not know the ID yet.
func TestFind(t *testing.T) {
	t.Parallel()
	pod := running(placed("a", "GPU-0", 20, 70))
	pods := append([]*v1.Pod{running(placed("b", "GPU-0", 20, 70))}, pod)
	pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses[0])
	pod.Status.InitContainerStatuses[0].Name, pod.Status.InitContainerStatuses[0].ContainerID = "sidecar", "cri-o://a-sidecar"
	for _, test := range []struct {
		in        cgroup.Container
		pod, name string
	}{
		{cgroup.Container{PodUID: "a", ID: "a-main"}, "a", "main"}, {cgroup.Container{PodUID: "a", ID: "a-sidecar"}, "a", "sidecar"},
		{cgroup.Container{PodUID: "a", ID: "b-main"}, "a", ""}, {cgroup.Container{PodUID: "c", ID: "a-main"}, "", ""},
	} {
		pod, name := find(pods, test.in)
		if pod == nil != (test.pod == "") || pod != nil && string(pod.UID) != test.pod || name != test.name {
			t.Errorf("%+v: %v, %q", test.in, pod, name)
		}
	}
	if !hasTickets(pod, "main") || hasTickets(pod, "sidecar") || !hasTickets(pod, "") || !hasTickets(nil, "") || !kube.Asks(pod) {
		t.Error("tickets")
	}
}
