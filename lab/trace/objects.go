package trace

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Image is the container image of simulated pods, which is never run.
const Image = "gshare.dev/simulated"

// maxPods is the pod capacity of a simulated node: more than any node of the trace has.
const maxPods = 1000

// Object returns the trace's node as a ready Kubernetes node, with its GPUs as gshare's agent would publish them.
func (n Node) Object() (*v1.Node, error) {
	inv := n.inventory()
	text, err := kube.EncodeInventory(inv)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", n.Name, err)
	}
	has := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(n.MilliCPU, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(n.MemoryMiB<<20, resource.BinarySI),
		v1.ResourcePods:   *resource.NewQuantity(maxPods, resource.DecimalSI),
	}
	node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: map[string]string{v1.LabelHostname: n.Name}}}
	if n.GPUs > 0 {
		node.Annotations = map[string]string{kube.AnnotationInventory: text}
		for name, quantity := range kube.NodeResources(inv) {
			has[name] = quantity
		}
	}
	node.Status = v1.NodeStatus{Capacity: has, Allocatable: has, Conditions: []v1.NodeCondition{
		{Type: v1.NodeReady, Status: v1.ConditionTrue, Reason: "Simulated", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()},
	}}
	return node, nil
}

func (n Node) inventory() kube.Inventory {
	var inv kube.Inventory
	device := n.device()
	for i := range n.GPUs {
		id := fmt.Sprintf("GPU-%s-%d", n.Name, i)
		inv.Slices = append(inv.Slices, kube.Slice{
			ID: id, Device: id, Model: n.Model, SMs: device.SMs, MemoryMiB: device.MemoryMiB, Healthy: true,
			Classes: []share.Isolation{share.Exclusive, share.MPS, share.Elastic},
		})
	}
	return inv
}

// Object returns the trace's pod as a Kubernetes pod for a scheduler profile. A gpu_milli of g for one GPU becomes ceil(g/10) percent of
// the SMs at full quota, and the same fraction of the memory of the smallest of gpus that the pod accepts; several GPUs
// become whole ones. A pod without GPUs stays a plain pod.
func (p Pod) Object(profile string, gpus map[string]Device) *v1.Pod {
	limits := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(p.MilliCPU, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(p.MemoryMiB<<20, resource.BinarySI),
	}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: metav1.NamespaceDefault},
		Spec: v1.PodSpec{
			SchedulerName: profile, TerminationGracePeriodSeconds: new(int64), EnableServiceLinks: new(bool),
			Containers: []v1.Container{{Name: "main", Image: Image, Resources: v1.ResourceRequirements{Limits: limits}}},
		},
	}
	if p.GPUs > 0 {
		p.askForShare(pod, limits, gpus)
	}
	pod.Spec.Containers[0].Resources.Requests = limits
	return pod
}

func (p Pod) askForShare(pod *v1.Pod, limits v1.ResourceList, gpus map[string]Device) {
	sm, quota := p.share()
	limits[kube.ResourceSM] = *resource.NewQuantity(int64(p.GPUs)*sm, resource.DecimalSI)
	limits[kube.ResourceQuota] = *resource.NewQuantity(quota, resource.DecimalSI)
	limits[kube.ResourceVGPU] = *resource.NewQuantity(int64(p.GPUs), resource.DecimalSI)
	limits[kube.ResourceMemory] = *resource.NewQuantity(int64(p.GPUs)*p.memoryMiB(gpus), resource.DecimalSI)
	limits[kube.ResourceSMTime] = *resource.NewQuantity(int64(p.GPUs)*sm*quota, resource.DecimalSI)
	if len(p.Models) > 0 {
		pod.Annotations = map[string]string{kube.AnnotationModel: strings.Join(p.Models, ",")}
	}
}

// memoryMiB returns the memory that the pod requests of each device: its fraction of the memory of the smallest acceptable device in the
// cluster.
func (p Pod) memoryMiB(gpus map[string]Device) int64 {
	smallest := int64(0)
	for model, d := range gpus {
		if len(p.Models) > 0 && !slices.Contains(p.Models, model) {
			continue
		}
		if smallest == 0 || d.MemoryMiB < smallest {
			smallest = d.MemoryMiB
		}
	}
	if smallest == 0 {
		smallest = 16 << 10 // no node accepts the pod; its event will say so
	}
	return max(1, smallest*p.MilliGPU/1000)
}

// Devices returns the GPUs of the nodes by their models. Of several that have the same model, it returns the one with the least memory.
func Devices(nodes []Node) map[string]Device {
	out := map[string]Device{}
	for _, n := range nodes {
		d := n.device()
		if other, has := out[n.Model]; n.GPUs > 0 && (!has || d.MemoryMiB < other.MemoryMiB) {
			out[n.Model] = d
		}
	}
	return out
}

// Replicate returns k copies of the nodes and pods, under new names: a larger cluster with proportionally more work.
func Replicate(nodes []Node, pods []Pod, k int) ([]Node, []Pod) {
	outNodes, outPods := slices.Clone(nodes), slices.Clone(pods)
	for i := 1; i < k; i++ {
		for _, n := range nodes {
			n.Name += "-" + strconv.Itoa(i)
			outNodes = append(outNodes, n)
		}
		for _, p := range pods {
			p.Name += "-" + strconv.Itoa(i)
			outPods = append(outPods, p)
		}
	}
	return outNodes, outPods
}
