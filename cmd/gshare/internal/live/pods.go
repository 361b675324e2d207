package live

import (
	"cmp"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	resource "k8s.io/component-helpers/resource"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/whatif"
)

func (r *reader) readPods(pods []*v1.Pod) {
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, pod := range pods {
		r.countSlices(pod)
	}
	for _, pod := range pods {
		if !kube.Ended(pod) {
			r.readPod(pod)
		}
	}
}

// readPod converts a pod that has not terminated: one with GPUs as a pod to pack, another one on a GPU node as used CPU and memory.
func (r *reader) readPod(pod *v1.Pod) {
	if len(pod.Spec.ResourceClaims) > 0 {
		r.claims++
	}
	node, gpu := r.byName[pod.Spec.NodeName], holdsGPU(pod)
	wanted := len(r.options.Namespaces) == 0 || slices.Contains(r.options.Namespaces, pod.Namespace)
	switch {
	case gpu && wanted && pod.Spec.NodeName == "":
		r.waiting++
	case node == nil:
	case !gpu:
		cpu, ram := cpuAndMemory(pod)
		node.CPU -= cpu
		node.RAM -= ram
	case !wanted:
		r.foreign++
	default:
		r.pods = append(r.pods, r.gpuPod(node, pod))
	}
}

// gpuPod converts a pod with GPUs. If its request is invalid, it counts as a request for whole GPUs.
func (r *reader) gpuPod(node *gpuNode, pod *v1.Pod) whatif.Pod {
	name := pod.Namespace + "/" + pod.Name
	out := whatif.Pod{Name: name, Node: node.Name, Held: node.heldGPUs(pod)}
	out.Tenant = pod.Namespace
	out.CPU, out.RAM = cpuAndMemory(pod)
	request, err := r.request(node, pod)
	if err != nil {
		r.refused = append(r.refused, fmt.Sprintf("%s: %v", name, err))
		request = wholeRequest(node, out.Held)
	}
	out.Request = request
	return out
}

// request returns the pod's request converted to gshare's resources. The scheduler's own code parses it, with the pod's annotations. A
// function's instance that has given up its SM-time, or is parked, counts as much as it does for the scheduler; one that takes turns with others
// on its slice counts with its whole share.
func (r *reader) request(node *gpuNode, pod *v1.Pod) (share.Request, error) {
	if kube.RequestsShare(pod) {
		request, _, err := kube.RequestOf(pod)
		if request.Isolation == share.Swap {
			return request, err
		}
		for at := range request.Containers {
			c := &request.Containers[at]
			c.Share = kube.LevelOf(pod).Charge(c.Share, kube.KeptOf(pod))
		}
		return request, err
	}
	pod = pod.DeepCopy()
	for c := range longRunning(pod) {
		c.Resources = r.convert(node, pod, c)
	}
	kube.Complete(pod)
	request, _, err := kube.RequestOf(pod)
	return request, err
}

// wholeRequest returns a request for as many whole GPUs as the pod occupies.
func wholeRequest(node *gpuNode, held packing.MilliGPU) share.Request {
	gpus := int(max(1, min(share.MaxVGPUs, (held+packing.WholeGPU-1)/packing.WholeGPU)))
	sh := share.Share{SMRequest: share.Whole, SMLimit: share.Whole, QuotaRequest: share.Whole, QuotaLimit: share.Whole,
		Memory: share.Bytes(node.memory) * share.MiB}
	return share.Request{Containers: []share.Container{{VGPUs: gpus, Share: sh}}}
}

// cpuAndMemory returns the CPU and memory that a pod requests.
func cpuAndMemory(pod *v1.Pod) (packing.MilliCPU, share.Bytes) {
	asked := resource.PodRequests(pod, resource.PodResourcesOptions{})
	return packing.MilliCPU(asked.Cpu().MilliValue()), share.Bytes(asked.Memory().Value())
}
