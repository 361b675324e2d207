package sharing

import (
	"context"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/plugins/ledger"
	"github.com/gshare-dev/gshare/plugins/registry"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// inventory has so many whole GPUs, named after the node: n1-0, n1-1 and so on.
func inventory(t testing.TB, node string, gpus int) string {
	t.Helper()
	var inv kube.Inventory
	for i := range gpus {
		id := fmt.Sprintf("%s-%d", node, i)
		inv.Slices = append(inv.Slices, kube.Slice{
			ID: id, Device: id, Model: "A100", SMs: 108, MemoryMiB: 40960, Healthy: true,
			Classes: []share.Isolation{share.Exclusive, share.MPS, share.Elastic},
		})
	}
	text, err := kube.EncodeInventory(inv)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func gpuNode(t testing.TB, name string, gpus int) *v1.Node {
	t.Helper()
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{kube.AnnotationInventory: inventory(t, name, gpus)},
		},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{
			v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("256Gi"), v1.ResourcePods: resource.MustParse("110"),
		}},
	}
}

// edit changes a pod under construction.
type edit func(*v1.Pod)

func cpuPod(name string, edits ...edit) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1"},
		Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("1Gi")},
			Limits:   v1.ResourceList{},
		}}}},
	}
	for _, e := range edits {
		e(pod)
	}
	return pod
}

// gpuPod requests a share of one GPU: percent of its SMs, percent of its time, and 1024 MiB.
func gpuPod(name string, sm, quota int64, edits ...edit) *v1.Pod {
	ask := []edit{limit(kube.ResourceSM, sm), limit(kube.ResourceQuota, quota), limit(kube.ResourceMemory, 1024)}
	pod := cpuPod(name, append(ask, edits...)...)
	kube.Complete(pod)
	return pod
}

func limit(name v1.ResourceName, n int64) edit {
	return func(pod *v1.Pod) {
		pod.Spec.Containers[0].Resources.Limits[name] = *resource.NewQuantity(n, resource.DecimalSI)
	}
}

func on(node string) edit { return func(pod *v1.Pod) { pod.Spec.NodeName = node } }

func withPriority(n int32) edit { return func(pod *v1.Pod) { pod.Spec.Priority = &n } }

func ending(pod *v1.Pod) { pod.DeletionTimestamp = &metav1.Time{} }

func annotation(name, value string) edit {
	return func(pod *v1.Pod) { metav1.SetMetaDataAnnotation(&pod.ObjectMeta, name, value) }
}

// placed returns the pod as it is once bound to these slices of the node.
func placed(t testing.TB, pod *v1.Pod, node string, slices ...string) *v1.Pod {
	t.Helper()
	out := pod.DeepCopy()
	out.Spec.NodeName, out.ResourceVersion = node, "2"
	req, _, err := kube.RequestOf(pod)
	if err != nil {
		t.Fatal(err)
	}
	c, class := kube.PlacedContainer{Name: req.Containers[0].Name}, share.MPS
	if s := req.Containers[0].Share; s.SMLimit > s.SMRequest {
		class = share.Elastic
	}
	for _, s := range slices {
		c.VGPUs = append(c.VGPUs, kube.PlacedVGPU{Slice: s, Class: class, Priority: req.Priority, Share: req.Containers[0].Share})
	}
	text, err := kube.EncodePlacement(kube.Placement{Node: node, UID: pod.UID, Model: kube.Slots, Containers: []kube.PlacedContainer{c}})
	if err != nil {
		t.Fatal(err)
	}
	annotation(kube.AnnotationPlacement, text)(out)
	return out
}

// configured is a plugin of the registry with these arguments.
func configured(t testing.TB, name, args string) registry.Plugin {
	t.Helper()
	p, err := registry.Load(name, &runtime.Unknown{Raw: []byte(args)})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// newPlugin makes a SlotPacking plugin that names at most so many candidates.
func newPlugin(t testing.TB, h *fakeHandle, candidates int) *Plugin {
	t.Helper()
	plugin := configured(t, registry.SlotPacking, fmt.Sprint("candidateNodes: ", candidates))
	p, err := New(context.Background(), Config{Plugin: plugin, Ledger: ledger.New()}, h)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// prefilter starts a cycle for the pod over the handle's snapshot.
func prefilter(t testing.TB, p *Plugin, pod *v1.Pod) (*fakeState, *fwk.PreFilterResult) {
	t.Helper()
	state := newState()
	result, status := p.PreFilter(context.Background(), state, pod, p.handle.(*fakeHandle).snapshot)
	if !status.IsSuccess() {
		t.Fatalf("PreFilter of %s: %v", pod.Name, status)
	}
	return state, result
}

// reserve runs a cycle for the pod up to Reserve on the node.
func reserve(t testing.TB, p *Plugin, pod *v1.Pod, node string) *fakeState {
	t.Helper()
	state, _ := prefilter(t, p, pod)
	if status := p.Reserve(context.Background(), state, pod, node); !status.IsSuccess() {
		t.Fatalf("Reserve of %s: %v", pod.Name, status)
	}
	return state
}

// requested is the SM-time assumed on each slice, in percent of the slice.
func requested(n *packing.Node) []int64 {
	out := make([]int64, len(n.Slices))
	for i := range out {
		out[i] = int64(n.Loads[i].Requested()) * 100 / int64(share.WholeArea)
	}
	return out
}
