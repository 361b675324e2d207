package plugins_test

import (
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/gshare-dev/gshare/plugins/registry"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// The memory of ResNeXt in figure 13 of FaST-GShare, in MiB: of a pod with its own weights, of a pod that shares them, and of the store with one
// copy of them.
const (
	resnextAlone, resnextShared, resnextStore = 3335, 1829, 1805
	resnextDigest                             = "sha256:5c0d5e7f5c0d5e7f5c0d5e7f5c0d5e7f5c0d5e7f5c0d5e7f5c0d5e7f5c0d5e7f"
)

// smallNode returns a node with a GPU of 16 GB, with or without a model store.
func smallNode(t *testing.T, name string, store bool) *v1.Node {
	t.Helper()
	id := name + "-0"
	text, err := kube.EncodeInventory(kube.Inventory{Slices: []kube.Slice{{
		ID: id, Device: id, Model: "V100", SMs: 80, MemoryMiB: 16384, Healthy: true, Classes: []share.Isolation{share.MPS}, Store: store,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	node := st.MakeNode().Name(name).UID("uid-" + name).Capacity(map[v1.ResourceName]string{"cpu": "64", "memory": "256Gi", "pods": "110"}).Obj()
	node.Annotations = map[string]string{kube.AnnotationInventory: text}
	return node
}

// resnext requests 12 % of a GPU's SMs, and declares weights if a digest is given.
func resnext(name, namespace string, memory int, digest string) *v1.Pod {
	pod := st.MakePod().Namespace(namespace).Name(name).UID("uid-" + name).Lim(map[v1.ResourceName]string{
		kube.ResourceSM: "12", kube.ResourceMemory: fmt.Sprint(memory),
	}).Obj()
	pod.ResourceVersion = "1"
	if digest != "" {
		pod.Annotations = map[string]string{kube.AnnotationWeights: fmt.Sprintf("%s=%dMi", digest, resnextStore)}
	}
	kube.Complete(pod)
	return pod
}

// bind schedules a pod on nodes with the bound pods. It returns the pod as the API server would store it, or nil and the reason why the first
// node refuses it. Each call uses a new scheduler, which knows about the bound pods only what their annotations say.
func bind(t *testing.T, plugin string, nodes []*v1.Node, bound []*v1.Pod, pod *v1.Pod) (*v1.Pod, string) {
	t.Helper()
	w := newWorldOf(t, plugin, nodes, bound...)
	w.knows(t, pod)
	state := framework.NewCycleState()
	if refused := w.filter(t, state, pod); refused.Len() == len(nodes) {
		return nil, refused.Get(nodes[0].Name).Message()
	}
	node, _ := w.best(t, state, pod)
	if status := w.RunReservePluginsReserve(t.Context(), state, pod, node); !status.IsSuccess() {
		t.Fatal(status)
	}
	assumed, _ := w.ledger.Get(pod.UID)
	binding, err := kube.MakeBinding(pod, node, assumed.Placement)
	if err != nil {
		t.Fatal(err)
	}
	out := pod.DeepCopy()
	out.Spec.NodeName, out.ResourceVersion = node, "2"
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	out.Annotations[kube.AnnotationPlacement] = binding.Annotations[kube.AnnotationPlacement]
	return out, ""
}

// TestSevenResNeXt is the case of FaST-GShare's figure 13: seven pods that declare their weights fit on a GPU of 16 GB, but only four
// that do not.
func TestSevenResNeXt(t *testing.T) {
	for name, tc := range map[string]struct {
		memory int
		digest string
		want   int
	}{
		"weights of each pod": {resnextAlone, "", 4},
		"weights once":        {resnextShared, resnextDigest, 7},
	} {
		t.Run(name, func(t *testing.T) {
			for _, plugin := range []string{registry.SlotPacking, registry.RectanglePacking, registry.ComplementaryPacking} {
				nodes, bound := []*v1.Node{smallNode(t, "n1", true), smallNode(t, "n2", true)}, []*v1.Pod(nil)
				first := map[string]int{} // how many of the first tc.want pods each node has
				for i := range 2*tc.want + 1 {
					pod, reason := bind(t, plugin, nodes, bound, resnext(fmt.Sprint("p", i), "team", tc.memory, tc.digest))
					if (pod == nil) != (i == 2*tc.want) || pod == nil && reason != "insufficient GPU memory" {
						t.Fatalf("%s: pod %d: %q", plugin, i, reason)
					}
					if pod != nil {
						bound = append(bound, pod)
						if i < tc.want {
							first[pod.Spec.NodeName]++
						}
					}
				}
				if tc.digest != "" && len(first) != 1 {
					t.Errorf("%s: the first %d pods are on %v, want one node", plugin, tc.want, first)
				}
			}
		})
	}
}

func TestWeightsOfPlacedPods(t *testing.T) {
	nodes := []*v1.Node{smallNode(t, "n1", true)}
	fill := func(t *testing.T) (bound []*v1.Pod) {
		for i := range 7 {
			pod, reason := bind(t, registry.SlotPacking, nodes, bound, resnext(fmt.Sprint("p", i), "team", resnextShared, resnextDigest))
			if pod == nil {
				t.Fatal(reason)
			}
			bound = append(bound, pod)
		}
		return bound
	}
	last := func(memory int, digest string) *v1.Pod { return resnext("last", "team", memory, digest) }
	free := 16384 - 7*resnextShared - resnextStore // MiB
	for name, tc := range map[string]struct {
		change func([]*v1.Pod) []*v1.Pod
		pod    *v1.Pod
		fits   bool
	}{
		"the rest":          {nil, last(free, resnextDigest), true},
		"more":              {nil, last(free+1, resnextDigest), false},
		"other weights":     {nil, last(1, strings.ReplaceAll(resnextDigest, "5c", "6c")), false},
		"one has gone":      {func(b []*v1.Pod) []*v1.Pod { return b[1:] }, last(free+resnextShared, resnextDigest), true},
		"all but one":       {func(b []*v1.Pod) []*v1.Pod { return b[6:] }, last(16384-resnextStore-resnextShared, resnextDigest), true},
		"all but one, more": {func(b []*v1.Pod) []*v1.Pod { return b[6:] }, last(16384-resnextStore-resnextShared+1, ""), false},
		"all have gone":     {func([]*v1.Pod) []*v1.Pod { return nil }, last(16384, ""), true},
		"annotations taken back": {func(b []*v1.Pod) []*v1.Pod { // what counts is with which weights the pods were placed
			for _, pod := range b {
				delete(pod.Annotations, kube.AnnotationWeights)
			}
			return b
		}, last(free+1, ""), false},
		"annotations raised": {func(b []*v1.Pod) []*v1.Pod {
			for _, pod := range b {
				pod.Annotations[kube.AnnotationWeights] = resnextDigest + "=9Gi"
			}
			return b
		}, last(free, ""), true},
	} {
		t.Run(name, func(t *testing.T) {
			bound := fill(t)
			if tc.change != nil {
				bound = tc.change(bound)
			}
			if pod, reason := bind(t, registry.SlotPacking, nodes, bound, tc.pod); (pod != nil) != tc.fits {
				t.Errorf("placed: %t, %q; want %t", pod != nil, reason, tc.fits)
			}
		})
	}
}

func TestWeightsNeedAStore(t *testing.T) {
	pod := resnext("p", "team", resnextShared, resnextDigest)
	if got, reason := bind(t, registry.SlotPacking, []*v1.Node{smallNode(t, "n1", false)}, nil, pod); got != nil || reason != "no model store for weights" {
		t.Errorf("placed: %t, %q", got != nil, reason)
	}
	got, reason := bind(t, registry.SlotPacking, []*v1.Node{smallNode(t, "n1", false), smallNode(t, "n2", true)}, nil, pod)
	if got == nil || got.Spec.NodeName != "n2" {
		t.Errorf("placed: %t, %q, want the node with a store", got != nil, reason)
	}
}
