package live

import (
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/usage"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const product = "NVIDIA-A100-SXM4-80GB"

// resources reads pairs of name and quantity.
func resources(t *testing.T, pairs ...string) v1.ResourceList {
	t.Helper()
	list := v1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		q, err := resource.ParseQuantity(pairs[i+1])
		if err != nil {
			t.Fatal(err)
		}
		list[v1.ResourceName(pairs[i])] = q
	}
	return list
}

func node(t *testing.T, name string, labels map[string]string, has ...string) *v1.Node {
	t.Helper()
	list := resources(t, append([]string{"cpu", "64", "memory", "512Gi"}, has...)...)
	return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Status: v1.NodeStatus{Capacity: list, Allocatable: list}}
}

var a100 = map[string]string{labelProduct: product, labelCount: "4", labelMemory: "81920"}

// pod runs on the node with one container that has the limits. Pods are a second apart in the order they are made.
func pod(t *testing.T, name, node string, limits ...string) *v1.Pod {
	t.Helper()
	pods++
	list := resources(t, limits...)
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ml", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(pods, 0))},
		Spec: v1.PodSpec{NodeName: node, Containers: []v1.Container{{
			Name: "main", Resources: v1.ResourceRequirements{Limits: list, Requests: list},
		}}},
		Status: v1.PodStatus{Phase: v1.PodRunning},
	}
}

var pods int64

// read reads a cluster of these objects through a client, and checks that it was only listed.
func read(t *testing.T, o Options, objects ...runtime.Object) (*Cluster, error) {
	t.Helper()
	if o.Assume == (usage.Assumption{}) {
		o.Assume = usage.DefaultAssumption
	}
	if o.GPUMemory == 0 {
		o.GPUMemory = 40960
	}
	client := fake.NewClientset(objects...)
	c, err := Read(t.Context(), client, o)
	for _, a := range client.Actions() {
		if what := a.GetResource().Resource; a.GetVerb() != "list" || !slices.Contains([]string{"nodes", "pods", "resourceclaims", "resourceslices"}, what) {
			t.Errorf("the cluster was asked to %s %s", a.GetVerb(), what)
		}
	}
	return c, err
}

func mustRead(t *testing.T, o Options, objects ...runtime.Object) *Cluster {
	t.Helper()
	c, err := read(t, o, objects...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// gshareNode is a node with two GPUs of gshare's.
func gshareNode(t *testing.T, name string) *v1.Node {
	t.Helper()
	var inv kube.Inventory
	for i := range 2 {
		id := fmt.Sprintf("GPU-%s-%d", name, i)
		inv.Slices = append(inv.Slices, kube.Slice{ID: id, Device: id, Model: "A100", SMs: 108, MemoryMiB: 81920, Healthy: true, Classes: []share.Isolation{"exclusive", "mps", "elastic"}})
	}
	text, err := kube.EncodeInventory(inv)
	if err != nil {
		t.Fatal(err)
	}
	n := node(t, name, nil)
	n.Annotations = map[string]string{kube.AnnotationInventory: text}
	return n
}
