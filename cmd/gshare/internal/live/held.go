package live

import (
	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// heldGPUs returns how many of the node's physical GPUs, as a fractional number, the pod occupies today.
func (g *gpuNode) heldGPUs(pod *v1.Pod) packing.MilliGPU {
	if kube.RequestsShare(pod) {
		return g.gpusHeldByShares(pod)
	}
	var sum packing.MilliGPU
	for c := range longRunning(pod) {
		devices, profile, _ := devicesHeldBy(c)
		sum += packing.MilliGPU(devices) * g.gpuFraction(c, profile)
	}
	return sum
}

// gpuFraction returns the fraction of a physical GPU that one device of a container's device plugin is.
func (g *gpuNode) gpuFraction(c *v1.Container, profile string) packing.MilliGPU {
	if profile == "" {
		profile = g.profile
	}
	if profile != "" {
		return migFraction(profile)
	}
	if memory, cores, ok := sizeRequestedBy(c); ok {
		return min(packing.WholeGPU, max(1, packing.MilliGPU(cores)*10, packing.MilliGPU(memory)*packing.WholeGPU/packing.MilliGPU(g.memory)))
	}
	return packing.WholeGPU / packing.MilliGPU(g.replicas)
}

// countSlices adds the shares in a pod's gshare placement to the number of shares on each GPU.
func (r *reader) countSlices(pod *v1.Pod) {
	if node := r.byName[pod.Spec.NodeName]; node != nil {
		for _, device := range node.devicesOf(pod) {
			node.inUse[device]++
		}
	}
}

// gpusHeldByShares returns how many physical GPUs a pod's shares occupy. Each GPU is divided evenly among its shares, so that they add up to
// one.
func (g *gpuNode) gpusHeldByShares(pod *v1.Pod) packing.MilliGPU {
	var sum packing.MilliGPU
	for _, device := range g.devicesOf(pod) {
		sum += packing.WholeGPU / packing.MilliGPU(g.inUse[device])
	}
	return sum
}

// devicesOf returns, for each vGPU in a pod's placement, the GPU that it is on.
func (g *gpuNode) devicesOf(pod *v1.Pod) (devices []string) {
	placement, _, err := kube.PlacementOf(pod)
	if err != nil || pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed {
		return nil
	}
	for _, c := range placement.Containers {
		for _, v := range c.VGPUs {
			if device, ok := g.devices[v.Slice]; ok {
				devices = append(devices, device)
			}
		}
	}
	return devices
}
