package agent

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/node/deviceid"
)

func TestLife(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	cdi := r.pod("a", "GPU-1", 60, 70)
	r.wait("device ID numbered like its slice", func() bool { // the kubelet may ask before the advice is there, and then takes the first free device ID
		if strings.HasPrefix(r.kubelet.Held("a", "main")[0], "g1-") {
			return true
		}
		cdi = r.admitted("a")
		return false
	})
	if r.left("cdi") != 0 {
		t.Error("a CDI file is there before the container is known")
	}
	r.mustCreate("a", cdi, "GPU-1")
	r.mustCreate("a", cdi, "GPU-1") // the container restarts
	r.wait("enforcement status", func() bool {
		r.cluster.mu.Lock()
		defer r.cluster.mu.Unlock()
		return strings.Contains(r.cluster.enforced["a"], "MPS")
	})
	r.kubelet.RemovePod("a")
	r.wait("release", func() bool { return len(r.grants()) == 0 })
	if r.left("cdi")+r.left("grants") != 0 {
		t.Errorf("%d CDI files, %d directories are left", r.left("cdi"), r.left("grants"))
	}
}

// TestReusedDeviceIDs: a container never gets the share of the device IDs' previous owner, even if the runtime creates it without PreStart.
func TestReusedDeviceIDs(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	cdi := r.pod("a", "GPU-0", 60, 70)
	r.mustCreate("a", cdi, "GPU-0")
	held := r.kubelet.Held("a", "main")
	r.kubelet.EndPod("a", v1.PodSucceeded)
	r.kubelet.AddPod(placed("b", "GPU-0", 60, 70))
	for { // until b gets the same device ID
		next := r.admitted("b")
		if slices.Equal(r.kubelet.Held("b", "main"), held) {
			if next != cdi {
				t.Fatal("the same device IDs have another name")
			}
			break
		}
	}
	if _, err := os.Stat(filepath.Join(r.dir, "cdi", "gshare.dev-grant-"+strings.TrimPrefix(cdi, "gshare.dev/grant=")+".json")); !os.IsNotExist(err) {
		t.Fatalf("after Allocate the old owner's file is still there (%v)", err)
	}
	r.mustCreate("b", cdi, "GPU-0") // may have to wait for the release of a's share
	if got := r.grants(); !slices.Equal(got, []string{"pod-b"}) {
		t.Errorf("granted: %v", got)
	}
}

func TestRefusals(t *testing.T) {
	t.Parallel()
	unplaced, unsafe := placed("unplaced", "GPU-0", 10, 10), placed("unsafe", "GPU-0", 10, 10)
	unplaced.Annotations = nil
	unsafe.Spec.Containers[0].SecurityContext = &v1.SecurityContext{Privileged: new(true)}
	copied := placed("copied", "GPU-0", 10, 10)
	copied.Annotations = placed("other", "GPU-0", 10, 10).Annotations
	for name, test := range map[string]struct {
		pod   *v1.Pod
		event string
	}{
		"not placed": {unplaced, "GPUShareNotPlaced"}, "unsafe": {unsafe, "GPUShareUnsafe"}, "copied": {copied, "GPUPlacementForged"},
		"no such slice": {placed("unknown", "GPU-9", 10, 10), "GPUSliceUnknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newFixture(t)
			r.kubelet.AddPod(test.pod)
			cdi := r.admitted(string(test.pod.UID))
			if spec, err := r.create(string(test.pod.UID), cdi); err == nil {
				t.Errorf("started with %s", spec)
			}
			if !r.cluster.hasEvent(test.event) {
				t.Errorf("events %v, want %s", r.cluster.events, test.event)
			}
			if r.left("cdi")+r.left("grants") != 0 {
				t.Error("files are left")
			}
		})
	}
}

// TestSetUpFails: a failed set-up leaves no state, and can be repeated. A grant from before stays in force.
func TestSetUpFails(t *testing.T) {
	t.Parallel()
	driver := ""
	r := newFixture(t, func(o *Options) { o.Config.Kubernetes.Driver = driver })
	cdi := r.pod("a", "GPU-0", 60, 70)
	r.mustCreate("a", cdi, "GPU-0")
	r.stop()
	driver = filepath.Join(r.dir, "driver.yaml")
	r.start()
	if spec, err := r.create("b", r.pod("b", "GPU-1", 60, 70)); err == nil {
		t.Fatalf("started without a driver: %s", spec)
	}
	if !r.cluster.hasEvent("GPUShareNotServed") {
		t.Errorf("events %v", r.cluster.events)
	}
	if _, err := r.create("a", cdi); err == nil { // the container restarts
		t.Error("started again without a driver")
	}
	if got := r.grants(); !slices.Equal(got, []string{"pod-a"}) || r.left("grants") != 1 {
		t.Errorf("granted: %v, %d directories", got, r.left("grants"))
	}
	r.write("driver.yaml", "devices: [{name: GPU-0}, {name: GPU-1}]")
	r.mustCreate("a", cdi, "GPU-0")
}

// TestRestart: a new agent restores the grants before the kubelet responds, and does not grant a share twice.
func TestRestart(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	cdi := r.pod("a", "GPU-0", 60, 70)
	r.mustCreate("a", cdi, "GPU-0")
	whole := r.pod("w", "GPU-1", 100, 100)
	r.mustCreate("w", whole, "GPU-1")
	forged := r.pod("b", "GPU-0", 60, 70) // admitted, although it does not fit beside a
	for range 3 {
		r.stop()
		r.kubelet.Kill()
		if err := r.kubelet.Start(); err != nil {
			t.Fatal(err)
		}
		r.start()
		if got := r.grants(); !slices.Equal(got, []string{"pod-a", "pod-w"}) {
			t.Fatalf("granted after a restart: %v", got)
		}
	}
	r.mustCreate("a", cdi, "GPU-0")
	if spec, err := r.create("b", forged); err == nil {
		t.Errorf("a share was granted twice: %s", spec)
	}
	r.kubelet.RemovePod("a")
	r.mustCreate("b", forged, "GPU-0") // it has been waiting for that room
}

// TestReboot: the agent's files are gone, and it adopts the containers from the kubelet's checkpoint.
func TestReboot(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	cdi := r.pod("a", "GPU-1", 60, 70)
	r.mustCreate("a", cdi, "GPU-1")
	r.stop()
	for _, dir := range []string{"cdi", "grants", "hook", "inventory.json"} {
		if err := os.RemoveAll(filepath.Join(r.dir, dir)); err != nil {
			t.Fatal(err)
		}
	}
	r.start()
	r.wait("adoption", func() bool { return slices.Equal(r.grants(), []string{"pod-a"}) && r.left("cdi") == 1 })
	r.mustCreate("a", cdi, "GPU-1")
}

// TestDeviceGone: a device that disappears while pods are bound to it stays in the inventory, with a fault.
func TestDeviceGone(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	cdi := r.pod("a", "GPU-1", 60, 70)
	r.mustCreate("a", cdi, "GPU-1")
	deviceIDs := len(deviceid.All(r.shares()))
	r.write("devices.yaml", strings.Split(devices, "- {uuid: GPU-1")[0])
	r.wait("event", func() bool { return r.cluster.hasEvent("GPUFault") })
	if n := len(r.kubelet.Devices()); n != deviceIDs {
		t.Errorf("%d device IDs, want %d", n, deviceIDs)
	}
	r.stop()
	r.start() // the new agent has not forgotten the device either
	if n := len(r.kubelet.Devices()); n != deviceIDs {
		t.Errorf("%d device IDs after a restart, want %d", n, deviceIDs)
	}
	r.write("devices.yaml", devices)
	r.wait("recovery", func() bool { return r.cluster.hasEvent("GPURecovered") })
	r.write("devices.yaml", strings.Split(devices, "- {uuid: GPU-1")[0])
	r.kubelet.RemovePod("a")
	if err := r.kubelet.WaitDevices(r.ctx, deviceIDs/2); err != nil {
		t.Error(err)
	}
}

func TestDrain(t *testing.T) {
	t.Parallel()
	drain := false
	r := newFixture(t, func(o *Options) {
		if drain {
			o.Config.Kubernetes.Drain = []string{"GPU-1"}
		}
	})
	for uid, slice := range map[string]string{"a": "GPU-0", "b": "GPU-1"} {
		r.mustCreate(uid, r.pod(uid, slice, 60, 70), slice)
	}
	r.stop()
	drain = true
	r.start()
	r.wait("eviction", func() bool {
		r.cluster.mu.Lock()
		defer r.cluster.mu.Unlock()
		return len(r.cluster.evicted) > 0 && strings.Contains(r.cluster.inventory, `"reason":"cordoned"`)
	})
	r.cluster.mu.Lock()
	defer r.cluster.mu.Unlock()
	if slices.Contains(r.cluster.evicted, "pod-a") {
		t.Errorf("evicted %v", r.cluster.evicted)
	}
}

// TestBurst: many containers start at once while the kubelet refuses some requests; each gets its own share.
func TestBurst(t *testing.T) {
	t.Parallel()
	r := newFixture(t, func(o *Options) { o.Config.MaxShares = 60 })
	cdi := map[string]string{}
	for i := range 50 {
		uid := fmt.Sprintf("%02d", i)
		cdi[uid] = r.pod(uid, fmt.Sprintf("GPU-%d", i%2), 5, 50)
	}
	r.kubelet.Busy.Store(15)
	var group sync.WaitGroup
	for uid, name := range cdi {
		group.Go(func() {
			slice := "GPU-" + string('0'+uid[1]%2)
			spec, err := r.createSoon(uid, name)
			if err != nil || !strings.Contains(spec, "CUDA_VISIBLE_DEVICES="+slice+`"`) {
				t.Errorf("%s: %v", uid, err)
			}
		})
	}
	group.Wait()
	if n := len(r.grants()); n != 50 {
		t.Errorf("%d shares are granted", n)
	}
}

// TestAPIServerAway: containers start without the API server. Once it is back, the agent publishes its state.
func TestAPIServerAway(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.cluster.mu.Lock()
	r.cluster.away, r.cluster.inventory = true, ""
	r.cluster.mu.Unlock()
	r.mustCreate("a", r.pod("a", "GPU-0", 60, 70), "GPU-0")
	r.cluster.mu.Lock()
	r.cluster.away = false
	r.cluster.mu.Unlock()
	r.wait("inventory", func() bool {
		r.cluster.mu.Lock()
		defer r.cluster.mu.Unlock()
		return r.cluster.inventory != "" && r.cluster.enforced["a"] != ""
	})
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.mustCreate("a", r.pod("a", "GPU-0", 60, 70), "GPU-0")
	server := httptest.NewServer(r.Handler())
	defer server.Close()
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/other": 404} {
		t.Run(path, func(t *testing.T) {
			response, err := http.Get(server.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != want {
				t.Errorf("%s", response.Status)
			}
		})
	}
	response, err := http.Get(server.URL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if got := families["gshare_node_grants"].GetMetric()[0].GetGauge().GetValue(); got != 1 {
		t.Errorf("gshare_node_grants is %v", got)
	}
	for name, want := range map[string]float64{ // 60 % of the SMs for 70 % of the time
		"gshare_node_grant_sm_time_ratio": 0.42, "gshare_node_slice_sm_time_promised_ratio": 0.42, "gshare_node_slice_shares": 1,
		"gshare_node_slice_info": 1, "gshare_node_slice_memory_bytes": 80 << 30,
	} {
		t.Run(name, func(t *testing.T) {
			if got := families[name].GetMetric()[0].GetGauge().GetValue(); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		})
	}
	if n := len(families["gshare_node_slice_healthy"].GetMetric()); n != 2 {
		t.Errorf("%d slices", n)
	}
	r.kubelet.Kill()
	r.wait("unreadiness", func() bool { return r.ready() != nil })
}

// TestSecondAgent: a second agent of a node does not serve, since it would grant the same shares again.
func TestSecondAgent(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	ctx, cancel := context.WithTimeout(r.ctx, 300*time.Millisecond)
	defer cancel()
	if err := r.Agent.Run(ctx); err == nil || !strings.Contains(err.Error(), "another agent") {
		t.Errorf("a second agent: %v", err)
	}
}
