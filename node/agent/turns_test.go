package agent

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/test/tokenclient"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// turnsFixture is a node with pods of class swap, of 60 of the 80 GiB of GPU-0 and all of its SMs each.
type turnsFixture struct {
	*fixture
	servers *servers
	owner   atomic.Value // of the next process that connects
}

func newTurnsFixture(t *testing.T) *turnsFixture {
	r := &turnsFixture{servers: &servers{copies: true}}
	r.owner.Store("")
	r.fixture = newFixture(t, func(o *Options) {
		o.Parking = r.servers
		o.Config.Kubernetes.Swap = &config.Swap{HostMemoryMiB: 100 << 10, KeptMemoryMiB: 512}
		o.Config.Kubernetes.ParkedHostMemoryMiB = 1 // which is for others
		o.ContainerOf = func(int) (cgroup.Container, error) { return cgroup.Container{PodUID: r.owner.Load().(string)}, nil }
	})
	return r
}

// turnPod returns a pod of class swap, which waits for its turn.
func (r *turnsFixture) turnPod(uid, address string) *v1.Pod {
	r.t.Helper()
	pod := placed(uid, "GPU-0", 100, 100)
	setMemory(r.t, pod, 60*gib)
	placement, _, err := kube.PlacementOf(pod)
	if err != nil {
		r.t.Fatal(err)
	}
	placement.Containers[0].VGPUs[0].Class = share.Swap
	text, err := kube.EncodePlacement(placement)
	if err != nil {
		r.t.Fatal(err)
	}
	pod.Annotations[kube.AnnotationPlacement] = text
	pod.Status.PodIP = address
	r.wants(pod, 1, residency.Warm)
	return pod
}

// connect returns the memory of a process in a pod, as it counts what it allocates.
func (r *turnsFixture) connect(uid string) *atomic.Uint64 {
	r.t.Helper()
	r.owner.Store(uid)
	process, err := tokenclient.Dial(filepath.Join(r.dir, "grants", r.record(uid).ID()), 0)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { process.Close() })
	return &process.VGPUs[0].Container.Memory
}

// checkRecords fails the test if more than one of the pods may have a turn, by what is on disk.
func (r *turnsFixture) checkRecords(uids ...string) {
	r.t.Helper()
	having := 0
	for _, uid := range uids {
		if g := r.record(uid); g.Level() > residency.Warm {
			having++
		}
	}
	if having > 1 {
		r.t.Errorf("%d pods have a turn", having)
	}
}

// TestTurns: of two pods that fit the GPU one after the other, the second starts once the first has given its memory back, and that one gets it again once
// the second has.
func TestTurns(t *testing.T) {
	t.Parallel()
	r := newTurnsFixture(t)
	if s := r.devices.currentInventory().Published().Slices[0]; s.Swap == nil || *s.Swap != (kube.Swap{HostMiB: 100 << 10, KeptMiB: 512}) {
		t.Errorf("the node offers %+v", s)
	}
	a, b := r.turnPod("a", "192.0.2.1"), r.turnPod("b", "192.0.2.2")
	r.wants(a, 2, residency.Hot)
	r.mustCreate("a", r.admitted("a"), "GPU-0")
	r.awaitReached("a", residency.Reached{Seq: 2, Level: residency.Hot})
	sum := r.connect("a")
	sum.Store(uint64(50 * gib))
	cdi := r.admitted("b")
	if _, err := r.create("b", cdi); err == nil || !strings.Contains(err.Error(), "turn") {
		t.Fatalf("the second starts before its turn: %v", err)
	}
	if !r.cluster.hasEvent("pod-b GPUAwaitsTurn") || r.reached("b") != (residency.Reached{}) {
		t.Errorf("events %q, reported %+v", r.cluster.events, r.reached("b"))
	}
	r.servers.set(func() error { sum.Store(uint64(300 * share.MiB)); return nil }, nil)
	r.wants(b, 2, residency.Hot)
	r.wants(a, 3, residency.Warm)
	r.mustCreate("b", cdi, "GPU-0") // waits for the memory
	parked := residency.Reached{Seq: 3, Level: residency.Warm, Memory: 300 * share.MiB, Host: 50*gib - 300*share.MiB}
	r.awaitReached("a", parked)
	r.awaitReached("b", residency.Reached{Seq: 2, Level: residency.Hot})
	r.checkRecords("a", "b")
	if free := 60*gib - share.Bytes(sum.Load()); free != 0 {
		t.Errorf("the parked one can allocate %d bytes", free)
	}
	if got := r.memory("GPU-0"); got != 60*gib+300*share.MiB {
		t.Errorf("the book counts %d bytes", got)
	}
	r.wants(a, 4, residency.Hot)
	refused := parked
	refused.Seq, refused.Refused = 4, true
	r.awaitReached("a", refused)

	r.stop()
	r.start() // the next agent gives nothing away that it does not know to be free
	r.wants(a, 5, residency.Shared)
	refused.Seq = 5
	r.awaitReached("a", refused)
	r.kubelet.RemovePod("b")
	r.wait("release", func() bool { return len(r.grants()) == 1 })
	r.wants(a, 6, residency.Hot)
	r.awaitReached("a", residency.Reached{Seq: 6, Level: residency.Hot})
	r.servers.mu.Lock()
	defer r.servers.mu.Unlock()
	if !slices.Equal(r.servers.parked, []string{"192.0.2.1:8080"}) || !slices.Contains(r.servers.woken, "192.0.2.1:8080") {
		t.Errorf("parked %q, woken %q", r.servers.parked, r.servers.woken)
	}
}

// TestKeepsTooMuch: a server that keeps more than is set aside is not parked, as others could not have their turns.
func TestKeepsTooMuch(t *testing.T) {
	t.Parallel()
	r := newTurnsFixture(t)
	pod := r.turnPod("a", "192.0.2.1")
	r.wants(pod, 2, residency.Hot)
	r.mustCreate("a", r.admitted("a"), "GPU-0")
	r.awaitReached("a", residency.Reached{Seq: 2, Level: residency.Hot})
	sum := r.connect("a")
	sum.Store(uint64(50 * gib))
	r.servers.set(func() error { sum.Store(uint64(513 * share.MiB)); return nil }, nil)
	r.wants(pod, 3, residency.Warm)
	r.awaitReached("a", residency.Reached{Seq: 3, Level: residency.Hot, Refused: true})
	if !r.cluster.hasEvent("it keeps 513 MiB of the device, more than the 512 that are set aside") {
		t.Errorf("events %q", r.cluster.events)
	}
	if free := 60*gib - share.Bytes(sum.Load()); free != 60*gib-513*share.MiB {
		t.Errorf("the process can allocate %d bytes", free)
	}
}

// TestTurnKilled: an agent that ends at any step between two turns leaves at most one pod with a turn, and the next agent goes on from there.
func TestTurnKilled(t *testing.T) {
	for _, c := range []struct {
		name string
		ends string // where the agent ends while the first gives the memory back
		then string // and while the second takes it; empty: it does not
	}{
		{"taken back", "parked", ""},
		{"parked", "enforced", ""},
		{"parked, recorded", "residency", ""},
		{"raised, recorded", "", "residency"},
		{"raised, enforced", "", "enforced"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newTurnsFixture(t)
			a, b := r.turnPod("a", "192.0.2.1"), r.turnPod("b", "192.0.2.2")
			r.wants(a, 2, residency.Hot)
			r.mustCreate("a", r.admitted("a"), "GPU-0")
			r.awaitReached("a", residency.Reached{Seq: 2, Level: residency.Hot})
			r.wants(a, 3, residency.Warm)
			r.awaitReached("a", residency.Reached{Seq: 3, Level: residency.Warm})
			r.wants(b, 2, residency.Hot)
			r.mustCreate("b", r.admitted("b"), "GPU-0")
			r.awaitReached("b", residency.Reached{Seq: 2, Level: residency.Hot})
			seq := int64(2) // of b, which has the turn now
			if c.then != "" {
				seq++
				r.wants(b, seq, residency.Warm)
				r.awaitReached("b", residency.Reached{Seq: seq, Level: residency.Warm})
			}
			r.wants(a, 3, residency.Warm) // with the reports
			r.wants(b, seq, map[bool]residency.Level{true: residency.Hot, false: residency.Warm}[c.then == ""])
			r.stop()
			if c.then == "" {
				r.killed(func() { r.changeOffline(b, seq+1, residency.Warm) }, c.ends)
			} else {
				r.killed(func() { r.changeOffline(a, 4, residency.Hot) }, c.then)
			}
			r.checkRecords("a", "b")
			r.granter.slices.Close()
			r.start()
			if c.then == "" {
				r.wants(b, seq+1, residency.Warm)
				r.awaitReached("b", residency.Reached{Seq: seq + 1, Level: residency.Warm})
			}
			r.wants(a, 4, residency.Hot)
			r.awaitReached("a", residency.Reached{Seq: 4, Level: residency.Hot})
			r.checkRecords("a", "b")
		})
	}
}

// TestTurnAfterReboot: a pod that was to give its memory back when the node was rebooted has nothing left of it. The agent says so, as others would wait for it.
func TestTurnAfterReboot(t *testing.T) {
	t.Parallel()
	r := newTurnsFixture(t)
	a, b := r.turnPod("a", "192.0.2.1"), r.turnPod("b", "192.0.2.2")
	r.wants(a, 2, residency.Hot)
	r.mustCreate("a", r.admitted("a"), "GPU-0")
	r.awaitReached("a", residency.Reached{Seq: 2, Level: residency.Hot})
	r.stop()
	if err := os.RemoveAll(filepath.Join(r.dir, "grants")); err != nil {
		t.Fatal(err)
	}
	r.wants(a, 3, residency.Warm)
	r.start()
	if _, err := r.create("a", ""); err == nil || !strings.Contains(err.Error(), "turn") {
		t.Fatalf("it starts without a turn: %v", err)
	}
	r.wait("report", func() bool { return r.reached("a") == residency.Reached{Seq: 3} })
	r.wants(b, 2, residency.Hot)
	r.mustCreate("b", r.admitted("b"), "GPU-0")
	r.awaitReached("b", residency.Reached{Seq: 2, Level: residency.Hot})
}
