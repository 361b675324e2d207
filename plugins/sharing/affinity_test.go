package sharing

import (
	"context"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/plugins/ledger"
	"github.com/gshare-dev/gshare/plugins/registry"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// newAffine makes a plugin whose ranker reads workloads.
func newAffine(t *testing.T, h *fakeHandle) *Plugin {
	t.Helper()
	p, err := New(context.Background(), Config{Plugin: configured(t, registry.ComplementaryPacking, ""), Ledger: ledger.New()}, h)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// sliceOf is where the plugin assumed the pod.
func sliceOf(t *testing.T, p *Plugin, pod *v1.Pod) string {
	t.Helper()
	assumed, ok := p.ledger.Get(pod.UID)
	if !ok {
		t.Fatalf("nothing assumed for %s", pod.Name)
	}
	return assumed.Containers[0].VGPUs[0].Slice
}

func workload(name string) edit { return annotation(kube.AnnotationWorkload, name) }

// The bound pod's workload comes from its annotation, that of one not bound yet from the assumed. Each GPU on which the new
// pod would fit more tightly is the control: there it goes without a workload, and under a ranker that reads none.
func TestWorkloadReachesTheRanker(t *testing.T) {
	bound := placed(t, gpuPod("bound", 30, 100, workload("web")), "n", "n-0")
	tight := placed(t, gpuPod("tight", 60, 100, workload("batch")), "n", "n-1")
	for name, c := range map[string]struct {
		make func(*testing.T, *fakeHandle) *Plugin
		key  string
		want string
	}{
		"the same workload": {newAffine, "web", "n-0"},
		"another workload":  {newAffine, "other", "n-1"},
		"its neighbour's":   {newAffine, "batch", "n-1"},
		"slot packing":      {func(t *testing.T, h *fakeHandle) *Plugin { return newPlugin(t, h, 0) }, "web", "n-1"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHandle(newNodeInfo(gpuNode(t, "n", 3), bound, tight))
			p := c.make(t, h)
			pod := gpuPod("new", 30, 100, workload(c.key))
			reserve(t, p, pod, "n")
			if got := sliceOf(t, p, pod); got != c.want {
				t.Errorf("on %s, want %s", got, c.want)
			}
		})
	}
}

func TestWorkloadOfAPromiseCounts(t *testing.T) {
	tight := placed(t, gpuPod("tight", 60, 100), "n", "n-1")
	h := newHandle(newNodeInfo(gpuNode(t, "n", 3), tight))
	p := newAffine(t, h)
	first, mate := gpuPod("first", 50, 100, workload("web")), gpuPod("mate", 30, 100, workload("web"))
	h.knows(first, mate)
	reserve(t, p, first, "n") // too large for n-1, and not in the snapshot afterwards
	reserve(t, p, mate, "n")
	if a, b := sliceOf(t, p, first), sliceOf(t, p, mate); a != b || a != "n-0" {
		t.Errorf("on %s and %s, want both on n-0", a, b)
	}
}

func TestWorkloadSplitsPodsOnlyWhereItIsRead(t *testing.T) {
	one, two := gpuPod("one", 50, 50, workload("web")), gpuPod("two", 50, 50, workload("batch"))
	affine, plain := newAffine(t, newHandle()), newPlugin(t, newHandle(), 0)
	if affine.podInfos.get(one).key == affine.podInfos.get(two).key {
		t.Error("workloads are read, but pods with different ones share ranks")
	}
	if plain.podInfos.get(one).key != plain.podInfos.get(two).key {
		t.Error("workloads are not read, but pods with different ones share no ranks")
	}
}
