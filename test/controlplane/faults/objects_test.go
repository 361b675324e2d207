package faults

import (
	"fmt"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/lab/trace"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

const (
	gpuModel  = "A100"
	gpuMemory = 80 << 10 // MiB
	rectangle = "gshare-rectangle"
)

type nodeOption func(*v1.Node)

// node returns a node with whole GPUs, and with more CPU and memory than any pod here requests.
func node(name string, gpus int, more ...nodeOption) *v1.Node {
	inv := inventory(name, gpus)
	has := kube.NodeResources(inv)
	has[v1.ResourceCPU], has[v1.ResourceMemory], has[v1.ResourcePods] = quantity("64"), quantity("256Gi"), quantity("250")
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{v1.LabelHostname: name},
			Annotations: map[string]string{kube.AnnotationInventory: encode(inv)},
		},
		Status: v1.NodeStatus{Capacity: has, Allocatable: has, Conditions: []v1.NodeCondition{
			{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "Simulated"},
		}},
	}
	for _, change := range more {
		change(n)
	}
	return n
}

func nodes(prefix string, count, gpus int, more ...nodeOption) []*v1.Node {
	var out []*v1.Node
	for i := range count {
		out = append(out, node(fmt.Sprintf("%s-%d", prefix, i), gpus, more...))
	}
	return out
}

func inventory(node string, gpus int) kube.Inventory {
	var inv kube.Inventory
	for i := range gpus {
		id := fmt.Sprintf("GPU-%s-%d", node, i)
		inv.Slices = append(inv.Slices, kube.Slice{
			ID: id, Device: id, Model: gpuModel, SMs: 108, MemoryMiB: gpuMemory, Healthy: true,
			Classes: []share.Isolation{share.Exclusive, share.MPS, share.Elastic},
		})
	}
	return inv
}

func encode(inv kube.Inventory) string {
	text, err := kube.EncodeInventory(inv)
	if err != nil {
		panic(err) // a bug in the test
	}
	return text
}

// ofModel replaces the model of all GPUs of the node.
func ofModel(model string) nodeOption {
	return func(n *v1.Node) {
		inv, _, err := kube.InventoryOf(n)
		if err != nil {
			panic(err)
		}
		for i := range inv.Slices {
			inv.Slices[i].Model = model
		}
		n.Annotations[kube.AnnotationInventory] = encode(inv)
	}
}

func allocatable(name v1.ResourceName, amount string) nodeOption {
	return func(n *v1.Node) { n.Status.Allocatable[name] = quantity(amount) }
}

type option func(*v1.Pod)

// gpuPod requests a percentage of SMs at full quota, completed as by the admission policies.
func gpuPod(name string, sm int64, more ...option) *v1.Pod {
	pod := rawPod(name, append([]option{gshare("sm", strconv.FormatInt(sm, 10)), gshare("mem", "1000")}, more...)...)
	kube.Complete(pod)
	return pod
}

// rawPod requests only what the options add.
func rawPod(name string, more ...option) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: metav1.NamespaceDefault, Annotations: map[string]string{}, Labels: map[string]string{},
		},
		Spec: v1.PodSpec{
			SchedulerName: kube.SchedulerName, TerminationGracePeriodSeconds: new(int64), EnableServiceLinks: new(bool),
			NodeSelector: map[string]string{}, Containers: []v1.Container{container("main")},
		},
	}
	for _, change := range more {
		change(pod)
	}
	return pod
}

func gpuPods(prefix string, count int, sm int64, more ...option) []*v1.Pod {
	var out []*v1.Pod
	for i := range count {
		out = append(out, gpuPod(fmt.Sprintf("%s-%d", prefix, i), sm, more...))
	}
	return out
}

// container returns a container that requests the given amounts of gshare's resources.
func container(name string, namesAndAmounts ...string) v1.Container {
	c := v1.Container{Name: name, Image: trace.Image, Resources: v1.ResourceRequirements{Limits: v1.ResourceList{}}}
	for i := 0; i < len(namesAndAmounts); i += 2 {
		c.Resources.Limits[v1.ResourceName("gshare/"+namesAndAmounts[i])] = quantity(namesAndAmounts[i+1])
	}
	return c
}

// sidecar returns an init container that keeps running beside the main containers.
func sidecar(c v1.Container) v1.Container {
	c.RestartPolicy = new(v1.ContainerRestartPolicyAlways)
	return c
}

// gshare sets one of gshare's resources on the main container.
func gshare(name, amount string) option { return asks(v1.ResourceName("gshare/"+name), amount) }

func asks(name v1.ResourceName, amount string) option {
	return func(p *v1.Pod) { p.Spec.Containers[0].Resources.Limits[name] = quantity(amount) }
}

func annotated(name, value string) option { return func(p *v1.Pod) { p.Annotations[name] = value } }

func labelled(name, value string) option { return func(p *v1.Pod) { p.Labels[name] = value } }

func on(node string) option {
	return func(p *v1.Pod) { p.Spec.NodeSelector[v1.LabelHostname] = node }
}

func profile(name string) option { return func(p *v1.Pod) { p.Spec.SchedulerName = name } }

func quantity(text string) resource.Quantity { return resource.MustParse(text) }
