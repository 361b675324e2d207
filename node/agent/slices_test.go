package agent

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/cdi"
	"github.com/gshare-dev/gshare/node/cgroup"
	"github.com/gshare-dev/gshare/node/deviceid"
	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/partition"
	"github.com/gshare-dev/gshare/node/partition/ondemand"
	fakemig "github.com/gshare-dev/gshare/test/fake/mig"
	config "github.com/gshare-dev/gshare/vgpu/api/config/node"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/mig"
)

// partitioned is a driver with one GPU in MIG mode.
type partitioned struct{ *fakemig.GPU }

func (p partitioned) Devices() ([]gpu.Device, error) {
	d := gpu.Device{UUID: "GPU-a", Model: "A100", SMs: 108, Memory: 80 << 30, MIG: true, Minor: 2}
	found, err := p.GPU.Instances()
	for n, i := range found {
		d.Instances = append(d.Instances, gpu.Instance{
			UUID: i.UUID, Profile: i.Profile.Name, SMs: i.Profile.SMs, Memory: 9 << 30, GPU: n + 1, Compute: 0,
		})
	}
	return []gpu.Device{d}, err
}

func (partitioned) Processes() ([]gpu.Process, error) { return nil, nil }

// withWholeGPU is a driver with a second GPU, which is not partitioned.
type withWholeGPU struct{ partitioned }

func (b withWholeGPU) Devices() ([]gpu.Device, error) {
	devices, err := b.partitioned.Devices()
	return append(devices, gpu.Device{UUID: "GPU-0", Model: "A100", SMs: 108, Memory: 80 << 30}), err
}

// newPartitioned returns a fixture with a GPU whose MIG instances are created on demand. wait is called before the GPU is opened.
func newPartitioned(t *testing.T, source func(partitioned) gpu.Source, wait func(), options ...func(*Options)) (*fixture, *fakemig.GPU) {
	t.Helper()
	m, err := mig.ModelNamed("A100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	g := fakemig.New("GPU-a", m)
	return newFixture(t, append(options, func(o *Options) {
		o.OnDemand = placesOn(g, source(partitioned{g}), o.Config.Directory, wait, "1g.10gb", "3g.40gb")
		o.Source = o.OnDemand
		o.Config.Kubernetes.WatchPeriod = metav1.Duration{Duration: 100 * time.Millisecond}
		o.ContainerOf = func(int) (cgroup.Container, error) { return cgroup.Container{}, cgroup.ErrNoContainer }
	})...), g
}

// placesOn returns a source that creates instances of some profiles on a GPU, with its journal in a directory.
func placesOn(g *fakemig.GPU, source gpu.Source, dir string, wait func(), profiles ...string) *ondemand.Source {
	return ondemand.New(source, []ondemand.GPU{{UUID: "GPU-a", Profiles: profiles, Open: func() (*partition.Manager, *mig.Model, error) {
		wait()
		m, err := partition.Open(partition.Config{Device: g, UUID: "GPU-a", BootID: "b", Store: partition.File(filepath.Join(dir, "mig.json"))})
		return m, g.Model(), err
	}}})
}

func (r *fixture) published() string {
	r.cluster.mu.Lock()
	defer r.cluster.mu.Unlock()
	return r.cluster.inventory
}

// TestOnDemand: a placement names GPU, profile and start; its instance is created before the container, is not shared with others, and
// outlives the agent. What the node offers does not depend on the instances that exist.
func TestOnDemand(t *testing.T) {
	t.Parallel()
	r, g := newPartitioned(t, func(p partitioned) gpu.Source { return p }, func() {})
	r.wait("inventory", func() bool { return r.published() != "" })
	before := r.published()
	inv, err := kube.DecodeInventory(before)
	if err != nil {
		t.Fatal(err)
	}
	// Two instances of half the GPU fill it as well as seven small ones.
	has := kube.NodeResources(inv)
	if deviceIDs, memory := has[kube.ResourceVGPU], has[kube.ResourceMemory]; deviceIDs.Value() != 32 || memory.Value() != 7*10<<10 {
		t.Errorf("%d device IDs, %d MiB", deviceIDs.Value(), memory.Value())
	}
	first := r.pod("a", "a.c3m4.4", 30, 50)
	r.mustCreate("a", first, "MIG-GPU-a-0-0")
	r.mustCreate("b", r.pod("b", "a.c3m4.4", 30, 40), "MIG-GPU-a-0-0") // MPS inside of it
	r.mustCreate("c", r.pod("c", "a.c1m1.2", 100, 100), "MIG-GPU-a-1-0")
	want := []string{"create GPU instance 3g.40gb at 4", "create compute instance 3g.40gb at 4", "create GPU instance 1g.10gb at 2", "create compute instance 1g.10gb at 2"}
	r.acted(g, want)
	r.stop()
	r.start()
	r.mustCreate("a", first, "MIG-GPU-a-0-0") // its container has ended and comes again
	r.acted(g, want)
	r.kubelet.RemovePod("a")
	r.kubelet.RemovePod("b")
	r.kubelet.RemovePod("c")
	r.wait("release", func() bool { return len(r.grants()) == 0 })
	r.mustCreate("d", r.pod("d", "a.c1m1.5", 100, 100), "MIG-GPU-a-0-0")
	r.acted(g, append(want,
		"destroy compute instance 3g.40gb at 4", "destroy GPU instance 3g.40gb at 4", "create GPU instance 1g.10gb at 5", "create compute instance 1g.10gb at 5"))
	if diff := cmp.Diff(before, r.published()); diff != "" {
		t.Error(diff)
	}
}

// TestHungOpening: while the driver hangs at opening a GPU with instances on demand, the agent registers, containers start on other GPUs,
// and grants on that GPU stay in force. Its containers are served again when it answers.
func TestHungOpening(t *testing.T) {
	t.Parallel()
	var hang chan struct{}
	r, g := newPartitioned(t, func(p partitioned) gpu.Source { return withWholeGPU{p} }, func() {
		if hang != nil {
			<-hang
		}
	})
	r.wait("inventory", func() bool { return r.offers("a.c1m1.0") && r.offers("GPU-0") })
	first := r.pod("a", "a.c3m4.4", 30, 50)
	r.mustCreate("a", first, "MIG-GPU-a-0-0")
	deviceIDs, acts := len(deviceid.All(r.shares())), len(g.Steps())
	r.stop()
	hang = make(chan struct{})
	r.start()
	if n := len(deviceid.All(r.shares())); n != deviceIDs {
		t.Errorf("%d device IDs, before it hung %d", n, deviceIDs)
	}
	r.mustCreate("b", r.pod("b", "GPU-0", 30, 50), "GPU-0")
	r.wait("report", func() bool {
		return r.offers("GPU-0") && !r.offers("a.c1m1.0") && r.enforced("a", ondemand.ErrClosed.Error())
	})
	if err := r.OnDemand.Ensure("a.c1m1.0"); !errors.Is(err, ondemand.ErrClosed) || r.serves("a") || !r.serves("b") {
		t.Errorf("%v; a is served: %v, b: %v", err, r.serves("a"), r.serves("b"))
	}
	close(hang)
	r.wait("opening", func() bool { return r.offers("a.c1m1.0") && r.serves("a") })
	r.mustCreate("a", first, "MIG-GPU-a-0-0")
	if n := len(g.Steps()); n != acts {
		t.Errorf("%q", g.Steps())
	}
}

// visited is a driver that lists a process on an instance; nil: on none.
type visited struct {
	partitioned
	on *atomic.Pointer[string]
}

func (v visited) Processes() (found []gpu.Process, _ error) {
	if slice := v.on.Load(); slice != nil {
		found = append(found, gpu.Process{PID: os.Getpid(), Slice: *slice})
	}
	return found, nil
}

// TestUsedPlace: an idle instance that is used without a share is not offered, nor are placements that overlap with it.
func TestUsedPlace(t *testing.T) {
	t.Parallel()
	var on atomic.Pointer[string]
	r, _ := newPartitioned(t, func(p partitioned) gpu.Source { return visited{p, &on} }, func() {})
	r.wait("inventory", func() bool { return r.offers("a.c1m1.6") })
	r.mustCreate("a", r.pod("a", "a.c1m1.6", 100, 100), "MIG-GPU-a-0-0")
	r.kubelet.RemovePod("a")
	r.wait("release", func() bool { return len(r.grants()) == 0 && r.OnDemand.UUID("a.c1m1.6") == "" })
	on.Store(new("MIG-GPU-a-0-0"))
	r.wait("use", func() bool { return !r.offers("a.c1m1.6") && !r.offers("a.c3m4.4") })
	if !r.offers("a.c1m1.0") || !r.offers("a.c3m4.0") {
		t.Error(r.published())
	}
	on.Store(nil)
	r.wait("end of the use", func() bool { return r.offers("a.c1m1.6") && r.offers("a.c3m4.4") })
}

// TestDroppedProfile: a container goes on in an instance of a profile that is no longer configured; its placement takes no new one.
func TestDroppedProfile(t *testing.T) {
	t.Parallel()
	r, g := newPartitioned(t, func(p partitioned) gpu.Source { return p }, func() {})
	r.wait("inventory", func() bool { return r.offers("a.c1m1.6") })
	first := r.pod("a", "a.c1m1.6", 30, 50)
	r.mustCreate("a", first, "MIG-GPU-a-0-0")
	r.stop()
	before := r.options
	r.options = func(o *Options) {
		before(o)
		o.OnDemand = placesOn(g, partitioned{g}, r.dir, func() {}, "3g.40gb")
		o.Source = o.OnDemand
	}
	r.start()
	r.wait("inventory", func() bool { return r.reason("a.c1m1.6") == kube.ReasonCordoned && r.offers("a.c3m4.0") })
	if !r.serves("a") || r.cluster.hasEvent("GPUFault") {
		t.Errorf("served: %v; events %q", r.serves("a"), r.cluster.events)
	}
	r.mustCreate("a", first, "MIG-GPU-a-0-0")
}

// reason returns why a published slice takes no new pods.
func (r *fixture) reason(slice string) kube.Reason {
	inv, _ := kube.DecodeInventory(r.published())
	for _, s := range inv.Slices {
		if s.ID == slice {
			return s.Reason
		}
	}
	return ""
}

// TestMissingProfile: a configured profile that a GPU lacks is logged.
func TestMissingProfile(t *testing.T) {
	t.Parallel()
	m, err := mig.ModelNamed("A100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	g, text := fakemig.New("GPU-a", m), &strings.Builder{}
	source := placesOn(g, partitioned{g}, t.TempDir(), func() {}, "1g.10gb", "1g.18gb", "1g.10gb+me")
	a, err := New(Options{
		Config: config.Configuration{Directory: t.TempDir()}.WithDefaults(), Source: source, OnDemand: source,
		Log: slog.New(slog.NewTextHandler(text, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	<-a.openGPUs(t.Context())
	for profile, missing := range map[string]bool{"1g.10gb": false, "1g.18gb": true, "1g.10gb+me": true} {
		t.Run(profile, func(t *testing.T) {
			if strings.Contains(text.String(), "device=GPU-a profile="+profile+"\n") != missing {
				t.Errorf("%s is missing: %v\n%s", profile, !missing, text)
			}
		})
	}
}

// serves reports whether a pod's container is served by the token server.
func (r *fixture) serves(uid string) bool {
	_, served := r.granter.grants.serviceOf(grant.Owner{UID: types.UID(uid), Container: "main"}.ID())
	return served
}

// acted checks the steps that were done on a GPU.
func (r *fixture) acted(g *fakemig.GPU, want []string) {
	r.t.Helper()
	var got []string
	for _, s := range g.Steps() {
		got = append(got, s.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Error(diff)
	}
}

// TestInstances: an existing MIG instance is a slice of its own, and its container gets exactly its device nodes.
func TestInstances(t *testing.T) {
	t.Parallel()
	r := newFixture(t, func(o *Options) {
		o.Config.Kubernetes.Driver = filepath.Join(o.Config.Directory, "driver.yaml")
		o.Capabilities = cdi.Capabilities(filepath.Join(o.Config.Directory, "mig-minors"))
	})
	r.write("driver.yaml", "cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ncontainerEdits: {deviceNodes: [{path: /dev/nvidiactl}]}\ndevices: []\n")
	r.write("mig-minors", "gpu0/gi0/access 12\ngpu0/gi0/ci0/access 13\n")
	r.write("devices.yaml", devices+"- {uuid: GPU-2, model: A100, sms: 108, memoryMiB: 81920, mig: [{uuid: MIG-0, profile: 1g.10gb, sms: 14, memoryMiB: 9728}]}\n")
	r.wait("instance", func() bool { return len(r.shares()) == 3 })
	spec, err := r.createSoon("a", r.pod("a", "MIG-0", 50, 50))
	if err != nil || !strings.Contains(spec, "CUDA_VISIBLE_DEVICES=MIG-0") {
		t.Fatalf("%v: %s", err, spec)
	}
	for _, node := range []string{"nvidiactl", "nvidia0", "nvidia-caps/nvidia-cap12", "nvidia-caps/nvidia-cap13"} {
		if !strings.Contains(spec, `"/dev/`+node+`"`) {
			t.Errorf("no %s in %s", node, spec)
		}
	}
	if n := strings.Count(spec, `"/dev/`); n != 4 {
		t.Errorf("%d nodes in %s", n, spec)
	}
}
