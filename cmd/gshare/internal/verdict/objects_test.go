package verdict

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// world is a cluster of one node with one A100, and a pod that waits for half of it.
type world struct {
	node   *v1.Node
	rules  *kube.Rules
	slices []kube.Slice
	pod    *v1.Pod
	others []*v1.Pod

	dropped v1.ResourceName // that the node does not advertise
}

func newWorld() *world {
	return &world{
		node: &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Labels: map[string]string{v1.LabelHostname: "n1"}}},
		slices: []kube.Slice{{ID: "GPU-1", Device: "GPU-1", Model: "A100", SMs: 108, MemoryMiB: 40960, Healthy: true, MaxShares: 4,
			Classes: []share.Isolation{share.Exclusive, share.MPS, share.Elastic}}},
		pod: podOf("asked", 50, 100, 10240),
	}
}

func podOf(name string, sm, quota, mem int64) *v1.Pod {
	q := func(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{}},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{
			kube.ResourceSM: q(sm), kube.ResourceQuota: q(quota), kube.ResourceMemory: q(mem),
		}}}}},
	}
	kube.Complete(pod)
	return pod
}

// beside is another pod, bound to the node with the share that it asks for.
func (w *world) beside(t *testing.T, name string, class share.Isolation, sm, quota share.PerMille, mem int64) *v1.Pod {
	t.Helper()
	pod := podOf(name, int64(sm/10), int64(quota/10), mem)
	pod.Spec.NodeName = w.node.Name
	text, err := kube.EncodePlacement(kube.Placement{Node: w.node.Name, UID: pod.UID, Model: kube.Slots, Containers: []kube.PlacedContainer{{
		Name: "main", VGPUs: []kube.PlacedVGPU{{Slice: "GPU-1", Class: class, Priority: share.BestEffort, Share: share.Share{
			SMRequest: sm, SMLimit: sm, QuotaRequest: quota, QuotaLimit: quota, Memory: share.Bytes(mem) * share.MiB}}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	pod.Annotations[kube.AnnotationPlacement] = text
	w.others = append(w.others, pod)
	return pod
}

// keyed gives a placed pod an anti-affinity key.
func (w *world) keyed(t *testing.T, pod *v1.Pod, key string) {
	t.Helper()
	p, _, err := kube.PlacementOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	p.AntiAffinity = key
	if pod.Annotations[kube.AnnotationPlacement], err = kube.EncodePlacement(p); err != nil {
		t.Fatal(err)
	}
}

// report explains the pod from what an API server says.
func (w *world) report(t *testing.T) *Report {
	t.Helper()
	node := w.node.DeepCopy()
	node.Status.Allocatable = v1.ResourceList{v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("64Gi"), v1.ResourcePods: resource.MustParse("20")}
	if w.slices != nil {
		inventory := kube.Inventory{Rules: w.rules, Slices: w.slices}
		text, err := kube.EncodeInventory(inventory)
		if err != nil {
			t.Fatal(err)
		}
		node.Annotations = map[string]string{kube.AnnotationInventory: text}
		for name, q := range kube.NodeResources(inventory, w.others...) {
			node.Status.Allocatable[name] = q
		}
	}
	delete(node.Status.Allocatable, w.dropped)
	for key, value := range w.node.Annotations {
		node.Annotations[key] = value
	}
	objects := []runtime.Object{node, w.pod}
	for _, pod := range w.others {
		objects = append(objects, pod)
	}
	s, err := cluster.Read(t.Context(), fake.NewClientset(objects...))
	if err != nil {
		t.Fatal(err)
	}
	pod, ok := s.Pod(types.NamespacedName{Namespace: w.pod.Namespace, Name: w.pod.Name})
	if !ok {
		t.Fatal("the pod is not there")
	}
	return Explain(s, pod)
}
