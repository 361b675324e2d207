package agent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// isClosed reports whether every published slice is closed to pods for this reason. It checks that the node's resources are unchanged.
func (r *fixture) isClosed(why kube.Reason) bool {
	r.t.Helper()
	r.cluster.mu.Lock()
	defer r.cluster.mu.Unlock()
	inv, err := kube.DecodeInventory(r.cluster.inventory)
	if err != nil || len(inv.Slices) != 2 || r.cluster.has.Name(kube.ResourceMemory, "").Value() != 2*81920 {
		r.t.Errorf("%v: %s, the node has %v", err, r.cluster.inventory, r.cluster.has)
	}
	return !slices.ContainsFunc(inv.Slices, func(s kube.Slice) bool { return s.Healthy || s.Reason != why })
}

// TestPublishesRules: the inventory contains the rules of the agent's configuration, even while the node is closed.
func TestPublishesRules(t *testing.T) {
	t.Parallel()
	want := kube.Rules{GammaPercent: 200, MixTenants: true, Window: metav1.Duration{Duration: 50 * time.Millisecond}}
	r := newFixture(t, func(o *Options) {
		o.Config.GammaPercent, o.Config.Tenancy, o.Config.Window = new(int64(200)), "mixed", want.Window
	})
	published := func() kube.Inventory {
		inv, err := kube.DecodeInventory(r.published())
		if err != nil || inv.Rules == nil || *inv.Rules != want {
			t.Errorf("%v: %s", err, r.published())
		}
		return inv
	}
	r.wait("opening", func() bool { return published().Slices[0].Healthy })
	r.stop()
	if published().Slices[0].Healthy {
		t.Error("the node of an agent that has ended is open")
	}
}

// TestClosing: an agent that is about to end closes the node first, and still serves pods that were bound before. The next agent opens
// the node.
func TestClosing(t *testing.T) {
	t.Parallel()
	come := make(chan struct{})
	r := newFixture(t, func(o *Options) {
		o.Linger = func(ctx context.Context) {
			select {
			case <-come:
			case <-ctx.Done():
			}
		}
	})
	if r.isClosed("") || !r.offers("GPU-0") || !r.offers("GPU-1") {
		t.Fatalf("a node that is served publishes %s", r.published())
	}
	admitted := r.pod("a", "GPU-0", 60, 70)
	r.kubelet.AddPod(placed("b", "GPU-1", 60, 70)) // bound, but not admitted by the kubelet yet
	ended := make(chan struct{})
	go func() {
		r.stop()
		close(ended)
	}()
	allCome := sync.OnceFunc(func() { close(come) })
	t.Cleanup(func() {
		allCome()
		<-ended
	})
	r.wait("a node that is closed, by an agent that is not ready", func() bool { return r.isClosed(kube.ReasonClosing) && r.ready() != nil })
	r.mustCreate("a", admitted, "GPU-0")
	r.mustCreate("b", r.admitted("b"), "GPU-1")
	allCome()
	<-ended
	if _, err := r.kubelet.Admit(r.ctx, "a", "main", 1); err == nil {
		t.Error("an agent that has ended still serves")
	}
	if !r.isClosed(kube.ReasonClosing) {
		t.Errorf("after the end: %s", r.published())
	}
	r.start() // returns once the agent is ready
	if !r.offers("GPU-0") || !r.offers("GPU-1") {
		t.Errorf("the next agent publishes %s", r.published())
	}
}

// TestCloseWithoutAPIServer: an agent can end without an API server, and does not wait for pods then.
func TestCloseWithoutAPIServer(t *testing.T) {
	t.Parallel()
	r := newFixture(t, func(o *Options) {
		o.Linger = func(context.Context) { t.Error("the agent waits for pods though the node is not closed") }
	})
	r.cluster.mu.Lock()
	r.cluster.away = true
	r.cluster.mu.Unlock()
	r.stop()
}

// TestCloseWithFullDisk: an agent that cannot save its inventory still closes the node.
func TestCloseWithFullDisk(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	blocker := filepath.Join(r.dir, inventoryName+".next")
	r.wait("the directory", func() bool { return os.Mkdir(blocker, 0o755) == nil }) // writes fail from now on, as on a full disk
	r.stop()
	if !r.isClosed(kube.ReasonClosing) {
		t.Errorf("the node is left open: %s", r.published())
	}
}

// TestFullDisk: a node is closed to pods while its agent cannot save the inventory, and the faults of its devices are published all the
// same. The agent is not ready then.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.mustCreate("a", r.pod("a", "GPU-1", 60, 70), "GPU-1")                         // so that its device stays in the inventory
	blocker := filepath.Join(r.dir, inventoryName+".next")                          // the agent may be writing this file at the moment
	r.wait("the directory", func() bool { return os.Mkdir(blocker, 0o755) == nil }) // writes fail from now on, as on a full disk
	r.write("devices.yaml", strings.Split(devices, "- {uuid: GPU-1")[0])
	r.wait("closed node", func() bool {
		return strings.Contains(r.published(), `"reason":"unsaved"`) && strings.Contains(r.published(), `"reason":"fault"`)
	})
	if r.offers("GPU-0") || r.offers("GPU-1") {
		t.Errorf("the node is open: %s", r.published())
	}
	r.wait("end of readiness", func() bool { return r.ready() != nil })
	if err := os.Remove(blocker); err != nil {
		t.Fatal(err)
	}
	r.wait("open node", func() bool { return r.offers("GPU-0") })
}

// TestKubeletAway: a node is closed to pods while its kubelet is away.
func TestKubeletAway(t *testing.T) {
	t.Parallel()
	r := newFixture(t)
	r.kubelet.Kill()
	r.wait("closed node", func() bool { return r.isClosed(kube.ReasonUnwatched) })
	if err := r.kubelet.Start(); err != nil {
		t.Fatal(err)
	}
	r.wait("open node", func() bool { return r.offers("GPU-0") && r.offers("GPU-1") })
}
