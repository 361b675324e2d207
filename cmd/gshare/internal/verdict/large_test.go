package verdict

import (
	"fmt"
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

// BenchmarkOf explains a pod that fits nowhere on a thousand nodes of eight GPUs, each with two pods.
func BenchmarkOf(b *testing.B) {
	s, err := cluster.Read(b.Context(), fake.NewClientset(crowd(b, 1000, 8)...))
	if err != nil {
		b.Fatal(err)
	}
	pod, _ := s.Pod(types.NamespacedName{Namespace: "ml", Name: "asked"})
	for b.Loop() {
		if r := Explain(s, pod); r.Reason != NoNode || len(r.Changes) == 0 {
			b.Fatalf("%s: %s", r.Reason, r.Summary)
		}
	}
}

func crowd(b *testing.B, nodes, gpus int) (objects []runtime.Object) {
	b.Helper()
	w := newWorld()
	w.pod = podOf("asked", 90, 100, 30000)
	objects = append(objects, w.pod)
	for i := range nodes {
		name := fmt.Sprintf("n%04d", i)
		inventory := kube.Inventory{}
		for g := range gpus {
			slice := w.slices[0]
			slice.ID = fmt.Sprintf("GPU-%s-%d", name, g)
			slice.Device = slice.ID
			inventory.Slices = append(inventory.Slices, slice)
			for k := range 2 {
				objects = append(objects, held(b, fmt.Sprintf("%s-%d-%d", name, g, k), name, slice.ID))
			}
		}
		text, err := kube.EncodeInventory(inventory)
		if err != nil {
			b.Fatal(err)
		}
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{kube.AnnotationInventory: text}}}
		node.Status.Allocatable = kube.NodeResources(inventory)
		node.Status.Allocatable[v1.ResourcePods] = resource.MustParse("250")
		objects = append(objects, node)
	}
	return objects
}

func held(b *testing.B, name, node, slice string) *v1.Pod {
	b.Helper()
	pod := podOf(name, 40, 60, 12000)
	pod.Spec.NodeName = node
	text, err := kube.EncodePlacement(kube.Placement{Node: node, UID: pod.UID, Model: kube.Slots, Containers: []kube.PlacedContainer{{
		Name: "main", VGPUs: []kube.PlacedVGPU{{Slice: slice, Class: share.MPS, Priority: share.BestEffort,
			Share: share.Share{SMRequest: 400, SMLimit: 400, QuotaRequest: 600, QuotaLimit: 600, Memory: 12000 * share.MiB}}},
	}}})
	if err != nil {
		b.Fatal(err)
	}
	pod.Annotations[kube.AnnotationPlacement] = text
	return pod
}
