package audit

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// cluster is made by hand: no packer has a part in it.
type cluster struct {
	t     testing.TB
	nodes []v1.Node
	pods  []v1.Pod
}

// spec is one pod of one container, and where it goes. The zero values are one vGPU with all of the time as slots and
// mps, unbound.
type spec struct {
	name, tenant string
	node         string
	slices       []string
	sm, quota    int64 // percent of a slice
	memory       int64 // MiB of a slice
	vgpus        int64
	cpu          int64
	class        share.Isolation
	packing      kube.FitModel
	annotations  map[string]string
}

func newCluster(t testing.TB) *cluster { return &cluster{t: t} }

func gpu(id string) kube.Slice {
	return kube.Slice{
		ID: id, Device: id, Model: "A100", SMs: 108, MemoryMiB: 40960, Healthy: true,
		Classes: []share.Isolation{share.Exclusive, share.MPS, share.Elastic},
	}
}

func mig(id, device string) kube.Slice {
	s := gpu(id)
	s.Device, s.Profile, s.SMs, s.MemoryMiB = device, "1g.5gb", 14, 4864
	return s
}

func (c *cluster) node(name string, slices ...kube.Slice) {
	c.t.Helper()
	inventory := kube.Inventory{Slices: slices}
	text, err := kube.EncodeInventory(inventory)
	if err != nil {
		c.t.Fatal(err)
	}
	has := kube.NodeResources(inventory)
	has[v1.ResourceCPU], has[v1.ResourceMemory] = resource.MustParse("32"), resource.MustParse("128Gi")
	has[v1.ResourcePods] = resource.MustParse("110")
	c.nodes = append(c.nodes, v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{kube.AnnotationInventory: text}},
		Status:     v1.NodeStatus{Allocatable: has},
	})
}

// add makes the pod, and its placement if it has a node, and gives it back to be spoilt.
func (c *cluster) add(s spec) *v1.Pod {
	c.t.Helper()
	pod := c.make(s)
	if s.node != "" {
		pod.Spec.NodeName = s.node
		c.place(&pod, c.placement(&pod, s))
	}
	c.pods = append(c.pods, pod)
	return &c.pods[len(c.pods)-1]
}

func (c *cluster) make(s spec) v1.Pod {
	c.t.Helper()
	vgpus := max(1, s.vgpus)
	limits := v1.ResourceList{
		kube.ResourceSM: number(s.sm * vgpus), kube.ResourceMemory: number(max(1, s.memory) * vgpus), kube.ResourceVGPU: number(vgpus),
	}
	if s.quota != 0 {
		limits[kube.ResourceQuota] = number(s.quota)
	}
	tenant := "team"
	if s.tenant != "" {
		tenant = s.tenant
	}
	pod := v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: s.name, UID: types.UID("uid-" + s.name), Annotations: map[string]string{}}}
	for key, value := range s.annotations {
		pod.Annotations[key] = value
	}
	requests := v1.ResourceList{v1.ResourceCPU: number(max(1, s.cpu))}
	pod.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Limits: limits, Requests: requests}}}
	kube.Complete(&pod)
	return pod
}
