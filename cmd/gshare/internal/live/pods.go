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
	known := make([]gpuUse, len(pods))
	for i, pod := range pods {
		if !kube.Ended(pod) {
			known[i] = r.useOf(pod)
		}
	}
	for i, pod := range pods {
		if !kube.Ended(pod) {
			r.readPod(pod, known[i])
		}
	}
}

// gpuUse is what a pod holds of GPUs.
type gpuUse struct {
	holds   map[string]hold // by container; none for pods with shares of gshare
	devices []string        // physical GPUs, each as often as it is used, if they are known
	any     bool
}

// useOf returns what a pod holds, and counts it on its node. A pod that only reserves GPUs for others holds none.
func (r *reader) useOf(pod *v1.Pod) (u gpuUse) {
	node := r.byName[pod.Spec.NodeName]
	if reserves(pod) {
		if node != nil {
			node.reserved += node.heldByHolds(pod, holdsOf(pod, nil))
		}
		return u
	}
	var claimed []driverDevice
	if pod.Spec.NodeName != "" {
		var err error
		if claimed, err = r.claims.devicesOf(pod); err != nil {
			r.doubt(pod, err.Error())
		}
	}
	if !kube.RequestsShare(pod) {
		u.holds = holdsOf(pod, claimed)
	}
	u.any = kube.RequestsShare(pod) || len(u.holds) > 0
	if node == nil || !u.any {
		return u
	}
	u.devices = node.namedDevices(pod, claimed)
	for _, device := range u.devices {
		node.inUse[device]++
	}
	for _, h := range u.holds {
		if h.resource == annotationFraction {
			node.fractions += h.devices
		}
	}
	return u
}

// heldBy returns how many of the node's physical GPUs, as a fractional number, the pod occupies today. A GPU that is known is divided
// evenly among its users, so that they add up to one. So are GPUs that are reserved for fractions.
func (g *gpuNode) heldBy(pod *v1.Pod, u gpuUse) (sum packing.MilliGPU) {
	if len(u.devices) > 0 || kube.RequestsShare(pod) {
		for _, device := range u.devices {
			sum += packing.WholeGPU / packing.MilliGPU(g.inUse[device])
		}
		return sum
	}
	if g.reserved > 0 {
		for _, h := range u.holds {
			if h.resource == annotationFraction {
				return g.reserved * packing.MilliGPU(h.devices) / packing.MilliGPU(g.fractions)
			}
		}
	}
	return g.heldByHolds(pod, u.holds)
}

// fits reports whether gshare accepts the pod where it is, with what it would request: it has whole GPUs for itself, or a share of gshare.
func (g *gpuNode) fits(pod *v1.Pod, u gpuUse) bool {
	if kube.RequestsShare(pod) {
		return len(u.devices) > 0
	}
	for _, device := range u.devices {
		if g.inUse[device] > 1 {
			return false
		}
	}
	for _, h := range u.holds {
		if h.resource == annotationFraction || g.fraction(h) != packing.WholeGPU {
			return false
		}
	}
	return true
}

// readPod converts a pod that has not terminated: one with GPUs as a pod to pack, another one on a GPU node as used CPU and memory.
func (r *reader) readPod(pod *v1.Pod, u gpuUse) {
	if !reserves(pod) {
		r.checkPod(pod, u.any || len(pod.Spec.ResourceClaims) > 0)
	}
	node := r.byName[pod.Spec.NodeName]
	wanted := len(r.options.Namespaces) == 0 || slices.Contains(r.options.Namespaces, pod.Namespace)
	switch {
	case u.any && wanted && pod.Spec.NodeName == "":
		r.waiting++
	case node == nil:
	case !u.any:
		cpu, ram := cpuAndMemory(pod)
		node.CPU -= cpu
		node.RAM -= ram
	case !wanted:
		r.foreign++
	default:
		r.pods = append(r.pods, r.gpuPod(node, pod, u))
	}
}

// gpuPod converts a pod with GPUs. If its request is invalid, it counts as a request for whole GPUs.
func (r *reader) gpuPod(node *gpuNode, pod *v1.Pod, u gpuUse) whatif.Pod {
	name := pod.Namespace + "/" + pod.Name
	out := whatif.Pod{Name: name, Node: node.Name, Held: node.heldBy(pod, u), Fits: node.fits(pod, u)}
	out.Tenant = pod.Namespace
	out.CPU, out.RAM = cpuAndMemory(pod)
	request, err := r.request(node, pod, u.holds)
	if err != nil {
		r.refused = append(r.refused, fmt.Sprintf("%s: %v", name, err))
		request = wholeRequest(node, out.Held)
	}
	out.Request = request
	return out
}

// request returns the pod's request converted to gshare's resources. The scheduler's own code parses it, with the pod's annotations. A
// function's instance that has given up its SM-time, or is parked, counts as much as it does for the scheduler; one that takes turns
// with others on its slice counts with its whole share.
func (r *reader) request(node *gpuNode, pod *v1.Pod, holds map[string]hold) (share.Request, error) {
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
	for _, c := range pod.Spec.InitContainers {
		if holds[c.Name].devices > 0 && !sidecar(&c) {
			return share.Request{}, fmt.Errorf("init container %s has GPUs, and gshare gives no share to one that ends", c.Name)
		}
	}
	for c := range containersOf(pod) {
		c.Resources = r.convert(node, pod, c, holds[c.Name])
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
