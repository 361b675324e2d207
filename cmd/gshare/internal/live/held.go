package live

import (
	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// held returns the part of the node's GPUs that the pod holds now.
func (g *gpuNode) held(pod *v1.Pod) packing.MilliGPU {
	if kube.RequestsShare(pod) {
		return g.heldOfSlices(pod)
	}
	var sum packing.MilliGPU
	for c := range lasting(pod) {
		devices, profile, _ := heldBy(c)
		sum += packing.MilliGPU(devices) * g.partOf(c, profile)
	}
	return sum
}

// partOf returns the fraction of a GPU that one device ID of a container stands for.
func (g *gpuNode) partOf(c *v1.Container, profile string) packing.MilliGPU {
	if profile == "" {
		profile = g.profile
	}
	if profile != "" {
		return migPart(profile)
	}
	if memory, cores, ok := statedBy(c); ok {
		return min(packing.WholeGPU, max(1, packing.MilliGPU(cores)*10, packing.MilliGPU(memory)*packing.WholeGPU/packing.MilliGPU(g.memory)))
	}
	return packing.WholeGPU / packing.MilliGPU(g.replicas)
}

// countSlices counts the shares of a pod on each GPU with gshare, from its placement.
func (r *reader) countSlices(pod *v1.Pod) {
	if node := r.byName[pod.Spec.NodeName]; node != nil {
		for _, device := range node.devicesOf(pod) {
			node.inUse[device]++
		}
	}
}

// heldOfSlices returns the part of GPUs that a pod's shares hold. A GPU is divided evenly among its shares, so that they add up to one.
func (g *gpuNode) heldOfSlices(pod *v1.Pod) packing.MilliGPU {
	var sum packing.MilliGPU
	for _, device := range g.devicesOf(pod) {
		sum += packing.WholeGPU / packing.MilliGPU(g.inUse[device])
	}
	return sum
}

// devicesOf returns the GPU of every vGPU of the pod.
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
