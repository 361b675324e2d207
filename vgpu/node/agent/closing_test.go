package agent

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// shut says that the API server was told of every slice that it takes no pods, and why. What the node has is what it had.
func (r *rig) shut(why kube.Reason) bool {
	r.t.Helper()
	r.cluster.mu.Lock()
	defer r.cluster.mu.Unlock()
	inv, err := kube.DecodeInventory(r.cluster.inventory)
	if err != nil || len(inv.Slices) != 2 || r.cluster.has.Name(kube.ResourceMemory, "").Value() != 2*81920 {
		r.t.Errorf("%v: %s, the node has %v", err, r.cluster.inventory, r.cluster.has)
	}
	return !slices.ContainsFunc(inv.Slices, func(s kube.Slice) bool { return s.Healthy || s.Reason != why })
}

// TestClosing: at its end an agent closes the node first. Pods that were bound by then are admitted and started; the end comes after
// them. The next agent opens the node.
func TestClosing(t *testing.T) {
	t.Parallel()
	come := make(chan struct{})
	r := newRig(t, func(o *Options) {
		o.Linger = func(ctx context.Context) {
			select {
			case <-come:
			case <-ctx.Done():
			}
		}
	})
	if r.shut("") || !r.offers("GPU-0") || !r.offers("GPU-1") {
		t.Fatalf("a node that is served says %s", r.published())
	}
	admitted := r.pod("a", "GPU-0", 60, 70)
	r.kubelet.AddPod(placed("b", "GPU-1", 60, 70)) // bound, and the kubelet has not come to it
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
	r.wait("closed node", func() bool { return r.shut(kube.ReasonClosing) })
	if r.ready() == nil {
		t.Error("an agent that closes its node says that pods can be placed there")
	}
	r.mustCreate("a", admitted, "GPU-0")
	r.mustCreate("b", r.admitted("b"), "GPU-1")
	allCome()
	<-ended
	if _, err := r.kubelet.Admit(r.ctx, "a", "main", 1); err == nil {
		t.Error("an agent that has ended still serves")
	}
	if !r.shut(kube.ReasonClosing) {
		t.Errorf("after the end: %s", r.published())
	}
	r.start() // until it is ready
	if !r.offers("GPU-0") || !r.offers("GPU-1") {
		t.Errorf("the next agent says %s", r.published())
	}
}

// TestClosingAway: an agent whose end the API server cannot be told of ends all the same, and does not wait for pods.
func TestClosingAway(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) {
		o.Linger = func(context.Context) { t.Error("it waits for pods though the node is not closed") }
	})
	r.cluster.mu.Lock()
	r.cluster.away = true
	r.cluster.mu.Unlock()
	r.stop()
}

// TestClosingDisk: an agent that cannot note on its disk what it publishes closes its node all the same.
func TestClosingDisk(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := os.Mkdir(filepath.Join(r.dir, inventoryName+".next"), 0o755); err != nil { // writes fail, as on a full disk
		t.Fatal(err)
	}
	r.stop()
	if !r.shut(kube.ReasonClosing) {
		t.Errorf("the node is left open: %s", r.published())
	}
}

// TestUnwatched: a node takes no pods while its kubelet is away.
func TestUnwatched(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.kubelet.Kill()
	r.wait("closed node", func() bool { return r.shut(kube.ReasonUnwatched) })
	if err := r.kubelet.Start(); err != nil {
		t.Fatal(err)
	}
	r.wait("open node", func() bool { return r.offers("GPU-0") && r.offers("GPU-1") })
}
