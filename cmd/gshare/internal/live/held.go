package live

import (
	"iter"
	"strings"

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

// longRunning yields the containers of a pod that run as long as the pod: its main containers and sidecars. These reuse GPUs that the other
// init containers requested.
func longRunning(pod *v1.Pod) iter.Seq[*v1.Container] {
	return func(yield func(*v1.Container) bool) {
		for i := range pod.Spec.InitContainers {
			c := &pod.Spec.InitContainers[i]
			if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways && !yield(c) {
				return
			}
		}
		for i := range pod.Spec.Containers {
			if !yield(&pod.Spec.Containers[i]) {
				return
			}
		}
	}
}

// holdsGPU reports whether a pod requests a GPU, a fraction of one, or a MIG instance.
func holdsGPU(pod *v1.Pod) bool {
	if kube.RequestsShare(pod) {
		return true
	}
	for c := range longRunning(pod) {
		if gpus, profile, _ := devicesHeldBy(c); gpus > 0 || profile != "" {
			return true
		}
	}
	return false
}

// devicesHeldBy returns the number of GPU devices that a container requests, their MIG profile if they are MIG instances, and whether they are
// NVIDIA's, which gshare can share.
func devicesHeldBy(c *v1.Container) (devices int64, profile string, nvidia bool) {
	limits := c.Resources.Limits
	for name, q := range limits {
		if p, ok := strings.CutPrefix(string(name), nvidiaMIG); ok && q.Value() > 0 && (profile == "" || p < profile) {
			devices, profile = q.Value(), p
		}
	}
	if profile != "" {
		return devices, profile, true
	}
	for _, name := range []v1.ResourceName{nvidiaGPU, nvidiaShared, sizeResources[1].count} {
		devices += quantityOf(limits, name)
	}
	if devices > 0 {
		return devices, "", true
	}
	for _, name := range otherVendors {
		devices += quantityOf(limits, name)
	}
	return devices, "", false
}

// sizeRequestedBy returns the memory (MiB) and the cores (percent) that a container requests of each GPU, or false if it requests neither.
func sizeRequestedBy(c *v1.Container) (memory, cores int64, ok bool) {
	for _, s := range sizeResources {
		if quantityOf(c.Resources.Limits, s.count) > 0 {
			memory, cores = quantityOf(c.Resources.Limits, s.memory), quantityOf(c.Resources.Limits, s.cores)
			return memory, cores, memory > 0 || cores > 0
		}
	}
	return 0, 0, false
}
