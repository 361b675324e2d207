package agent

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/parking"
	"github.com/gshare-dev/gshare/test/tokenclient"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const gib = 1024 * share.MiB

// servers is a Parking of servers that do as they are told, or not.
type servers struct {
	mu     sync.Mutex // guards the following
	copies bool
	parks  func() error
	wakes  func() error
	parked []string // addresses, in the order in which they were parked
	woken  []string
}

func (s *servers) Find(context.Context, parking.Server) (parking.Method, error) { return s, nil }
func (s *servers) Name() string                                                 { return "test" }
func (s *servers) Probe(context.Context, parking.Server) error                  { return nil }
func (s *servers) CopiesToHost() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.copies
}

func (s *servers) Park(_ context.Context, server parking.Server) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parked = append(s.parked, server.Address)
	if s.parks != nil {
		return s.parks()
	}
	return nil
}

func (s *servers) Wake(_ context.Context, server parking.Server) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.woken = append(s.woken, server.Address)
	if s.wakes != nil {
		return s.wakes()
	}
	return nil
}

func (s *servers) set(parks, wakes func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.parks, s.wakes = parks, wakes
}

func (s *servers) told() (parked, woken int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.parked), len(s.woken)
}

// parkable returns a fixture whose pods have addresses, and their servers.
func parkable(t *testing.T) (*fixture, *servers) {
	s := &servers{}
	return newFixture(t, func(o *Options) {
		o.Parking = s
		o.ContainerOf = func(int) (cgroup.Container, error) { return cgroup.Container{PodUID: "a"}, nil }
	}), s
}

func (r *fixture) addressed(uid string) *v1.Pod {
	r.t.Helper()
	pod := r.instance(uid)
	pod.Status.PodIP = "192.0.2.1"
	r.kubelet.AddPod(pod)
	return pod
}

// memory returns the bytes that the book counts on a slice.
func (r *fixture) memory(slice string) share.Bytes { return r.granter.grants.grantedMemory(slice) }

// TestParking: a server gives its memory back, which then is another's, and takes it again when there is room: its limit is lifted before it is told.
func TestParking(t *testing.T) {
	t.Parallel()
	r, servers := parkable(t)
	pod := r.addressed("a")
	r.awaitReached("a", residency.Reached{Seq: 1, Level: residency.Hot})
	process, err := tokenclient.Dial(filepath.Join(r.dir, "grants", r.record("a").ID()), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	sum := &process.VGPUs[0].Container.Memory
	sum.Store(uint64(gib))
	servers.set(func() error { sum.Store(uint64(5 * share.MiB)); return nil }, func() error {
		if free := gib - share.Bytes(sum.Load()); free < 1000*share.MiB {
			t.Errorf("the server is told to load while it can allocate %d bytes", free)
		}
		return nil
	})
	before := r.memory("GPU-0")
	r.wants(pod, 2, residency.Warm)
	r.awaitReached("a", residency.Reached{Seq: 2, Level: residency.Warm, Memory: 5 * share.MiB})
	if now := r.memory("GPU-0"); before != gib || now != 5*share.MiB {
		t.Errorf("the book counts %d bytes, and %d before", now, before)
	}
	if free := gib - share.Bytes(sum.Load()); free != 0 {
		t.Errorf("the process can allocate %d bytes", free)
	}
	if len(servers.parked) != 1 || servers.parked[0] != "192.0.2.1:8080" {
		t.Errorf("parked %q", servers.parked)
	}
	large := placed("large", "GPU-0", 10, 10)
	setMemory(t, large, 80*gib-gib/2)
	r.kubelet.AddPod(large)
	r.mustCreate("large", r.admitted("large"), "GPU-0")
	r.wants(pod, 3, residency.Hot)
	r.awaitReached("a", residency.Reached{Seq: 3, Level: residency.Warm, Refused: true, Memory: 5 * share.MiB})
	r.kubelet.RemovePod("large")
	r.wait("release", func() bool { return len(r.grants()) == 1 })
	r.wants(pod, 4, residency.Hot)
	r.awaitReached("a", residency.Reached{Seq: 4, Level: residency.Hot})
	if _, woken := servers.told(); woken != 1 {
		t.Errorf("woken %d times", woken)
	}
}

// setMemory changes what the placement of a pod says of its memory.
func setMemory(t *testing.T, pod *v1.Pod, memory share.Bytes) {
	t.Helper()
	resources := &pod.Spec.Containers[0].Resources
	for _, list := range []v1.ResourceList{resources.Limits, resources.Requests} {
		if list != nil {
			list[kube.ResourceMemory] = *resource.NewQuantity(int64(memory/share.MiB), resource.DecimalSI)
		}
	}
	placement, _, err := kube.PlacementOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	placement.Containers[0].VGPUs[0].Share.Memory = memory
	text, err := kube.EncodePlacement(placement)
	if err != nil {
		t.Fatal(err)
	}
	pod.Annotations[kube.AnnotationPlacement] = text
}

// TestCannotPark: a server that refuses, one that keeps all of its memory, and one without an address go on as they were, and their pods say why.
func TestCannotPark(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*servers, *v1.Pod, *tokenclient.Client)
		why    string
		woken  bool
	}{
		"refuses": {func(s *servers, _ *v1.Pod, _ *tokenclient.Client) {
			s.set(func() error { return errors.New("not today") }, nil)
		}, "not today", true},
		"keeps all": {func(_ *servers, _ *v1.Pod, process *tokenclient.Client) {
			process.VGPUs[0].Container.Memory.Store(uint64(gib))
		}, "have given no device memory back", true},
		"no address":     {func(_ *servers, p *v1.Pod, _ *tokenclient.Client) { p.Status.PodIP = "" }, "has no address", false},
		"of the network": {func(_ *servers, p *v1.Pod, _ *tokenclient.Client) { p.Spec.HostNetwork = true }, "has the network of the node", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, servers := parkable(t)
			pod := r.addressed("a")
			r.awaitReached("a", residency.Reached{Seq: 1, Level: residency.Hot})
			process, err := tokenclient.Dial(filepath.Join(r.dir, "grants", r.record("a").ID()), 0)
			if err != nil {
				t.Fatal(err)
			}
			defer process.Close()
			c.change(servers, pod, process)
			r.wants(pod, 2, residency.Warm)
			r.awaitReached("a", residency.Reached{Seq: 2, Level: residency.Hot, Refused: true})
			if !r.cluster.hasEvent("GPUCannotPark") || !r.cluster.hasEvent(c.why) || r.cluster.hasEvent("GPUResidencyRefused") {
				t.Errorf("events %q", r.cluster.events)
			}
			if _, woken := servers.told(); (woken > 0) != c.woken {
				t.Errorf("woken %d times", woken)
			}
			if r.memory("GPU-0") != gib {
				t.Errorf("the book counts %d bytes", r.memory("GPU-0"))
			}
		})
	}
}

// TestParkedHostMemory: what a server keeps in the memory of the host is counted, also by the next agent, and another one that would exceed the limit is
// not parked; a server that reads its files again has nothing there.
func TestParkedHostMemory(t *testing.T) {
	t.Parallel()
	servers := &servers{copies: true}
	owner := atomic.Value{} // of the process that connects
	r := newFixture(t, func(o *Options) {
		o.Parking, o.Config.Kubernetes.ParkedHostMemoryMiB = servers, 100
		o.ContainerOf = func(int) (cgroup.Container, error) { return cgroup.Container{PodUID: owner.Load().(string)}, nil }
	})
	owner.Store("a")
	first := r.addressed("a")
	r.awaitReached("a", residency.Reached{Seq: 1, Level: residency.Hot})
	connect := func(uid string) *atomic.Uint64 {
		t.Helper()
		owner.Store(uid)
		process, err := tokenclient.Dial(filepath.Join(r.dir, "grants", r.record(uid).ID()), 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { process.Close() })
		return &process.VGPUs[0].Container.Memory
	}
	sum := connect("a")
	sum.Store(uint64(60 * share.MiB))
	servers.set(func() error { sum.Store(uint64(5 * share.MiB)); return nil }, nil)
	r.wants(first, 2, residency.Warm)
	r.awaitReached("a", residency.Reached{Seq: 2, Level: residency.Warm, Memory: 5 * share.MiB, Host: 55 * share.MiB})

	second := placed("b", "GPU-1", 60, 90)
	second.Status.PodIP = "192.0.2.2"
	r.wants(second, 1, residency.Hot)
	r.mustCreate("b", r.admitted("b"), "GPU-1")
	r.awaitReached("b", residency.Reached{Seq: 1, Level: residency.Hot})
	other := connect("b")
	other.Store(uint64(50 * share.MiB))
	r.wants(second, 2, residency.Warm)
	r.awaitReached("b", residency.Reached{Seq: 2, Level: residency.Hot, Refused: true})
	if !r.cluster.hasEvent("it may keep 50 MiB in the memory of the host, of which parked containers of the node have 60 of 100 MiB") {
		t.Errorf("events %q", r.cluster.events)
	}
	servers.mu.Lock()
	servers.copies = false
	servers.mu.Unlock()
	servers.set(func() error { other.Store(0); return nil }, nil)
	r.wants(second, 3, residency.Hot)
	r.awaitReached("b", residency.Reached{Seq: 3, Level: residency.Hot})
	r.wants(second, 4, residency.Warm)
	r.awaitReached("b", residency.Reached{Seq: 4, Level: residency.Warm})

	next := &hostAccount{} // of the next agent, which knows the records
	if err := next.reserve("c", 46*share.MiB, r.granter.grants.all(), 100*share.MiB); err == nil {
		t.Error("what is recorded does not count")
	}
	if err := next.reserve("c", 45*share.MiB, r.granter.grants.all(), 100*share.MiB); err != nil {
		t.Error(err)
	}
}

// TestWakeFails: a server that does not wake is told again, and not reported before it has.
func TestWakeFails(t *testing.T) {
	t.Parallel()
	r, servers := parkable(t)
	pod := r.addressed("a")
	r.wants(pod, 2, residency.Warm)
	r.awaitReached("a", residency.Reached{Seq: 2, Level: residency.Warm})
	servers.set(nil, func() error { return errors.New("too early") })
	r.wants(pod, 3, residency.Shared)
	r.wait("event", func() bool { return r.cluster.hasEvent("GPUCannotWake") && r.cluster.hasEvent("too early") })
	if r.record("a").Residency != (residency.Reached{Seq: 3, Level: residency.Shared}) || r.reached("a").Seq != 2 {
		t.Errorf("the record is %+v, reported %+v", r.record("a").Residency, r.reached("a"))
	}
	servers.set(nil, nil)
	r.awaitReached("a", residency.Reached{Seq: 3, Level: residency.Shared})
}

// TestParkingKilled: an agent that ends at any step of parking or waking leaves what the next one completes, and memory that a process may hold counts.
func TestParkingKilled(t *testing.T) {
	for _, c := range []struct {
		name         string
		before, to   residency.Level
		at           string
		record       residency.Level
		parked, woke bool // the next agent tells the server so
	}{
		{"to be parked, taken back", residency.Hot, residency.Warm, "parked", residency.Hot, true, false},
		{"to be parked, enforced", residency.Hot, residency.Warm, "enforced", residency.Hot, true, false},
		{"to be parked, recorded", residency.Hot, residency.Warm, "residency", residency.Warm, false, false},
		{"to be woken, recorded", residency.Warm, residency.Hot, "residency", residency.Hot, false, true},
		{"to be woken, enforced", residency.Warm, residency.Shared, "enforced", residency.Shared, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, servers := parkable(t)
			pod := r.addressed("a")
			seq := int64(1)
			if c.before == residency.Warm {
				seq++
				r.wants(pod, seq, residency.Warm)
			}
			r.awaitReached("a", residency.Reached{Seq: seq, Level: c.before})
			r.wants(pod, seq, c.before) // with the report
			r.stop()
			r.killed(func() { r.changeOffline(pod, seq+1, c.to) }, c.at)
			if got := r.record("a"); got.Level() != c.record {
				t.Errorf("the record is %v, want %v", got.Level(), c.record)
			}
			r.granter.slices.Close()
			parked, woken := servers.told()
			r.start()
			r.wants(pod, seq+1, c.to)
			r.awaitReached("a", residency.Reached{Seq: seq + 1, Level: c.to})
			parkedNow, wokenNow := servers.told()
			if (parkedNow > parked) != c.parked || (wokenNow > woken) != c.woke {
				t.Errorf("the next agent parks %d times and wakes %d times", parkedNow-parked, wokenNow-woken)
			}
		})
	}
}
