package agent

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/node/modelstore"
	"github.com/gshare-dev/gshare/node/store"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

var testWeights = []share.Weights{{Digest: share.Digest("sha256:" + strings.Repeat("a", 64)), Memory: 100 * share.MiB}}

// loaded returns a pod that declares weights, placed on a slice.
func loaded(uid, slice string) *v1.Pod { return declaring(placed(uid, slice, 10, 10)) }

// declaring lets a pod that is placed declare weights, and returns it.
func declaring(pod *v1.Pod) *v1.Pod {
	placement, err := kube.DecodePlacement(pod.Annotations[kube.AnnotationPlacement])
	if err != nil {
		panic(err)
	}
	placement.Weights = testWeights
	text, err := kube.EncodePlacement(placement)
	if err != nil {
		panic(err)
	}
	pod.Annotations[kube.AnnotationPlacement] = text
	pod.Annotations[kube.AnnotationWeights] = string(testWeights[0].Digest) + "=100Mi"
	return pod
}

// withStores has the agent run stores, which this test program plays.
func withStores(o *Options) {
	o.Config.Kubernetes.ModelStore = true
	o.Stores = modelstore.New(modelstore.Config{
		Dir: filepath.Join(o.Config.Directory, "stores"), Grants: filepath.Join(o.Config.Directory, "grants"), Program: os.Args[0],
		AnswerTimeout: time.Minute, Log: slog.New(slog.DiscardHandler),
	})
}

// storePID returns the PID of the store of a slice, 0 if none runs.
func (r *fixture) storePID(slice string) int {
	id := modelstore.Store{Slice: slice, Namespace: "default"}.ID()
	p, runs := store.Control(filepath.Join(r.dir, "stores", id)).Holder()
	if !runs {
		return 0
	}
	defer p.Close()
	return p.PID
}

// startLoaded starts the container of a pod with weights, and returns its CDI file.
func (r *fixture) startLoaded(uid string) (spec string) {
	r.t.Helper()
	r.kubelet.AddPod(loaded(uid, "GPU-0"))
	spec, err := r.createSoon(uid, r.admitted(uid))
	if err != nil {
		r.t.Fatal(err)
	}
	return spec
}

// TestStore follows the store of a slice: it starts before the first container that declares weights, outlives the agent, is replaced when it is
// killed, and ends with the last container.
func TestStore(t *testing.T) {
	t.Parallel()
	r := newFixture(t, withStores)
	t.Cleanup(func() { _ = r.Stores.Stop() })
	cdi := r.pod("other", "GPU-0", 10, 10)
	r.mustCreate("other", cdi, "GPU-0")
	if pid := r.storePID("GPU-0"); pid != 0 {
		t.Errorf("store %d without weights", pid)
	}
	spec := r.startLoaded("a")
	pid := r.storePID("GPU-0")
	if pid == 0 || !strings.Contains(spec, "GSHARE_STORE=/run/gshare-store/0/store.sock") {
		t.Fatalf("PID %d, %s", pid, spec)
	}
	r.startLoaded("b")
	r.stop()
	r.start()
	if now := r.storePID("GPU-0"); now != pid || !r.Stores.Owns(pid) {
		t.Errorf("store %d after the agent's restart, %d before; owned %v", now, pid, r.Stores.Owns(pid))
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.wait("another store", func() bool { now := r.storePID("GPU-0"); return now != 0 && now != pid })
	r.kubelet.RemovePod("a")
	r.wait("release", func() bool { return len(r.grants()) == 2 })
	if r.storePID("GPU-0") == 0 {
		t.Error("the store has ended while a container uses it")
	}
	r.kubelet.RemovePod("b")
	r.wait("the store's end", func() bool { return r.storePID("GPU-0") == 0 && r.left("stores") == 0 })
}

// TestStoreWithoutPods: a store whose last pod has gone has ended before its memory is granted to another.
func TestStoreWithoutPods(t *testing.T) {
	t.Parallel()
	r := newFixture(t, withStores)
	t.Cleanup(func() { _ = r.Stores.Stop() })
	none := func(modelstore.Store) (store.Survivors, error) { return store.Survivors{}, nil }
	var err error
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last error: %v", err)
		}
	})
	r.wait("a store", func() bool { // repeated: a busy machine may take longer to start or end one than the agent waits
		err = r.Stores.Open(t.Context(), modelstore.Store{Slice: "GPU-0", Namespace: "default"}, "GPU-0", none)
		return err == nil
	})
	r.wait("the grant of its memory", func() bool {
		err = r.granter.stores.open(t.Context(), &grant.Grant{VGPUs: []kube.PlacedVGPU{{Slice: "GPU-0"}}})
		return err == nil
	})
	if pid := r.storePID("GPU-0"); pid != 0 || r.left("stores") != 0 {
		t.Errorf("store %d is left", pid)
	}
}

// TestStoreFails: a container is not started without the store that it needs, and one without weights is.
func TestStoreFails(t *testing.T) {
	t.Parallel()
	r := newFixture(t, withStores, func(o *Options) { o.Stores.Program = "/nonexistent" })
	cdi := r.pod("other", "GPU-0", 10, 10)
	r.mustCreate("other", cdi, "GPU-0")
	r.kubelet.AddPod(loaded("a", "GPU-0"))
	if spec, err := r.create("a", r.admitted("a")); err == nil {
		t.Errorf("it has started: %s", spec)
	}
	if got := strings.Join(r.grants(), " "); got != "pod-other" {
		t.Errorf("grants of %s", got)
	}
	if !r.cluster.hasEvent("GPUShareNotServed") {
		t.Errorf("events %q", r.cluster.events)
	}
}

// TestSurvivors: what processes declare of a store that has ended is known by their sessions, and not while they connect again.
func TestSurvivors(t *testing.T) {
	t.Parallel()
	r := newFixture(t, withStores)
	t.Cleanup(func() { _ = r.Stores.Stop() })
	r.startLoaded("a")
	s := modelstore.Store{Slice: "GPU-0", Namespace: "default"}
	left, err := r.granter.stores.survivorsOf(s)
	if err != nil && !errors.Is(err, errSessions) || len(left.PIDs) != 0 || share.MemoryOf(left.Weights) != 100*share.MiB {
		t.Errorf("%+v, %v", left, err)
	}
	if left, err := r.granter.stores.survivorsOf(modelstore.Store{Slice: "GPU-0", Namespace: "other"}); err != nil || left.Weights != nil {
		t.Errorf("another namespace: %+v, %v", left, err)
	}
}
