package plugins_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	st "k8s.io/kubernetes/pkg/scheduler/testing"

	"github.com/gshare-dev/gshare/lab/audit"
	"github.com/gshare-dev/gshare/plugins/registry"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// annotated returns a pod with 10 % of a GPU and the given annotations, as pairs of name and value.
func annotated(name, namespace string, pairs ...string) *v1.Pod {
	pod := resnext(name, namespace, 1024, "")
	pod.Annotations = map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		pod.Annotations[pairs[i]] = pairs[i+1]
	}
	return pod
}

// fourGPUs returns two nodes with two GPUs each.
func fourGPUs(t *testing.T) []*v1.Node { return []*v1.Node{gpuNode(t, "n1", 2), gpuNode(t, "n2", 2)} }

// onSlice returns the slice of a bound pod with one vGPU.
func onSlice(t *testing.T, pod *v1.Pod) string {
	t.Helper()
	p, there, err := kube.PlacementOf(pod)
	if err != nil || !there {
		t.Fatalf("pod %s: %t, %v", pod.Name, there, err)
	}
	return p.Containers[0].VGPUs[0].Slice
}

// bindAll binds count pods with these annotations one after another, and returns the pods that were bound before together with the new ones.
func bindAll(t *testing.T, plugin string, nodes []*v1.Node, bound []*v1.Pod, name string, count int, pairs ...string) []*v1.Pod {
	t.Helper()
	for i := range count {
		pod, reason := bind(t, plugin, nodes, bound, annotated(fmt.Sprint(name, i), "team", pairs...))
		if pod == nil {
			t.Fatalf("%s%d: %s", name, i, reason)
		}
		bound = append(bound, pod)
	}
	return bound
}

// countOn counts pods by slice.
func countOn(t *testing.T, pods []*v1.Pod) map[string]int {
	t.Helper()
	on := map[string]int{}
	for _, pod := range pods {
		on[onSlice(t, pod)]++
	}
	return on
}

var packingPlugins = []string{registry.SlotPacking, registry.RectanglePacking, registry.ComplementaryPacking}

// TestKeysStayApart: as many pods with the same anti-affinity key are placed as there are GPUs, each on its own GPU. The next one waits, and its
// event says why. Pods with another key or none are unaffected. The independent checker finds no violation in the cluster.
func TestKeysStayApart(t *testing.T) {
	for _, plugin := range packingPlugins {
		t.Run(plugin, func(t *testing.T) {
			nodes := fourGPUs(t)
			bound := bindAll(t, plugin, nodes, nil, "p", 4, kube.AnnotationAntiAffinity, "replica")
			if on := countOn(t, bound); len(on) != 4 {
				t.Fatalf("four pods with one key are on %v", on)
			}
			fifth := annotated("fifth", "team", kube.AnnotationAntiAffinity, "replica")
			if pod, reason := bind(t, plugin, nodes, bound, fifth); pod != nil || reason != "GPUs hold a share with the same anti-affinity" {
				t.Errorf("a fifth one: placed %t, %q", pod != nil, reason)
			}
			bound = bindAll(t, plugin, nodes, bound, "other", 4, kube.AnnotationAntiAffinity, "other")
			bound = bindAll(t, plugin, nodes, bound, "none", 4)
			var all []v1.Pod
			for _, pod := range bound {
				all = append(all, *pod)
			}
			var objects []v1.Node
			for _, node := range nodes {
				objects = append(objects, *node)
				inventory, _, err := kube.InventoryOf(node)
				if err != nil {
					t.Fatal(err)
				}
				maps.Copy(objects[len(objects)-1].Status.Allocatable, kube.NodeResources(inventory))
			}
			if r := audit.Check(objects, all, audit.Options{}); len(r.Violations) != 0 {
				t.Errorf("%+v", r.Violations)
			}
			if pod, reason := bind(t, plugin, nodes, bound[1:], fifth); pod == nil || onSlice(t, pod) != onSlice(t, bound[0]) {
				t.Errorf("once one has gone: placed %t, %s", pod != nil, reason)
			}
		})
	}
}

// TestKeysOfPlacedPodsCount: the key with which a pod was placed counts. By editing the annotation of a running pod, a tenant can neither free a
// GPU nor block one.
func TestKeysOfPlacedPodsCount(t *testing.T) {
	nodes := fourGPUs(t)[:1]
	bound := bindAll(t, registry.SlotPacking, nodes, nil, "p", 2, kube.AnnotationAntiAffinity, "replica")
	for _, pod := range bound {
		pod.Annotations[kube.AnnotationAntiAffinity] = "edited"
	}
	if pod, _ := bind(t, registry.SlotPacking, nodes, bound, annotated("third", "team", kube.AnnotationAntiAffinity, "replica")); pod != nil {
		t.Error("an edit has freed a GPU")
	}
	if pod, reason := bind(t, registry.SlotPacking, nodes, bound, annotated("third", "team", kube.AnnotationAntiAffinity, "edited")); pod == nil {
		t.Errorf("an edit keeps a pod away: %s", reason)
	}
}

// TestWishes: pods with packing "spread" occupy every empty GPU before any GPU gets a second pod; pods with "binpack" share a GPU as long as it
// has room.
func TestWishes(t *testing.T) {
	for _, plugin := range packingPlugins {
		t.Run(plugin, func(t *testing.T) {
			nodes := fourGPUs(t)
			spread := countOn(t, bindAll(t, plugin, nodes, nil, "p", 8, kube.AnnotationPacking, "spread"))
			if counts := slices.Sorted(maps.Values(spread)); !slices.Equal(counts, []int{2, 2, 2, 2}) {
				t.Errorf("spread: %v", spread)
			}
			mixed := bindAll(t, plugin, nodes, nil, "spread", 3, kube.AnnotationPacking, "spread")
			mixed = bindAll(t, plugin, nodes, mixed, "more", 1, kube.AnnotationPacking, "binpack")
			full := onSlice(t, mixed[3])
			mixed = bindAll(t, plugin, nodes, mixed, "full", 6, kube.AnnotationPacking, "binpack")
			if on := countOn(t, mixed); on[full] != 8 || len(on) != 3 {
				t.Errorf("binpack beside three spread ones: %v", on)
			}
			if last := bindAll(t, plugin, nodes, mixed, "last", 1, kube.AnnotationPacking, "spread"); countOn(t, last)[onSlice(t, last[len(last)-1])] != 1 {
				t.Errorf("the last one shares a GPU although one is empty: %v", countOn(t, last))
			}
		})
	}
}

// TestModelOverSeveralGPUs: the vGPUs of one pod are on one node, each alone on its GPU. On a node with GPUs of several sizes, they are on the
// GPUs with the most memory.
func TestModelOverSeveralGPUs(t *testing.T) {
	sized := func(name string, mib ...int64) *v1.Node {
		var inv kube.Inventory
		for i, memory := range mib {
			id := fmt.Sprintf("%s-%d", name, i)
			inv.Slices = append(inv.Slices, kube.Slice{
				ID: id, Device: id, Model: "A100", SMs: 108, MemoryMiB: memory, Healthy: true, Classes: []share.Isolation{share.Exclusive, share.MPS},
			})
		}
		text, err := kube.EncodeInventory(inv)
		if err != nil {
			t.Fatal(err)
		}
		node := gpuNode(t, name, 1)
		node.Annotations[kube.AnnotationInventory] = text
		return node
	}
	model := func(vgpus, mib int) *v1.Pod {
		pod := st.MakePod().Namespace("team").Name("model").UID("uid-model").Lim(map[v1.ResourceName]string{
			kube.ResourceSM: fmt.Sprint(100 * vgpus), kube.ResourceMemory: fmt.Sprint(mib),
		}).Obj()
		pod.ResourceVersion = "1"
		kube.Complete(pod)
		return pod
	}
	for name, tc := range map[string]struct {
		bound  bool // a small pod is on the first GPU of n2
		pod    *v1.Pod
		node   string
		want   []string
		reason string // why n1 refuses it
	}{
		"the largest of a node":             {false, model(2, 20480), "n2", []string{"n2-1", "n2-3"}, ""},
		"all of a node":                     {false, model(4, 80000), "n2", []string{"n2-0", "n2-1", "n2-2", "n2-3"}, ""},
		"no parts of GPUs in use":           {true, model(3, 30720), "n2", []string{"n2-1", "n2-2", "n2-3"}, ""},
		"more than one node has free":       {true, model(4, 80000), "", nil, "fewer GPUs than requested vGPUs"},
		"more than each GPU has for a part": {false, model(3, 3*41000), "", nil, "share larger than a slice"},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := []*v1.Node{sized("n1", 20480), sized("n2", 20480, 40960, 24576, 40960)}
			var bound []*v1.Pod
			if tc.bound {
				pod, reason := bind(t, registry.SlotPacking, nodes[1:], nil, annotated("small", "team", kube.AnnotationPacking, "spread"))
				if pod == nil || onSlice(t, pod) != "n2-0" {
					t.Fatal(reason)
				}
				bound = []*v1.Pod{pod}
			}
			for _, plugin := range packingPlugins {
				pod, reason := bind(t, plugin, nodes, bound, tc.pod)
				if (pod != nil) != (tc.node != "") || reason != tc.reason {
					t.Fatalf("%s: placed %t, %q", plugin, pod != nil, reason)
				}
				if pod == nil {
					continue
				}
				p, _, err := kube.PlacementOf(pod)
				if err != nil {
					t.Fatal(err)
				}
				var on []string
				for _, v := range p.Containers[0].VGPUs {
					on = append(on, v.Slice)
				}
				slices.Sort(on)
				if p.Node != tc.node || !slices.Equal(on, tc.want) {
					t.Errorf("%s: on %v of %s", plugin, on, p.Node)
				}
			}
		})
	}
}
