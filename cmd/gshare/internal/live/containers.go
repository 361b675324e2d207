package live

import (
	"iter"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// lasting yields the containers of a pod that run as long as the pod: its main containers and sidecars. These reuse GPUs that the other
// init containers requested.
func lasting(pod *v1.Pod) iter.Seq[*v1.Container] {
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
	for c := range lasting(pod) {
		if gpus, profile, _ := heldBy(c); gpus > 0 || profile != "" {
			return true
		}
	}
	return false
}

// heldBy returns the number of GPU devices that a container requests, their MIG profile if they are MIG instances, and whether they are
// NVIDIA's, which gshare can share.
func heldBy(c *v1.Container) (devices int64, profile string, nvidia bool) {
	limits := c.Resources.Limits
	for name, q := range limits {
		if p, ok := strings.CutPrefix(string(name), nvidiaMIG); ok && q.Value() > 0 && (profile == "" || p < profile) {
			devices, profile = q.Value(), p
		}
	}
	if profile != "" {
		return devices, profile, true
	}
	for _, name := range []v1.ResourceName{nvidiaGPU, nvidiaShared, stated[1].count} {
		devices += count(limits, name)
	}
	if devices > 0 {
		return devices, "", true
	}
	for _, name := range otherWhole {
		devices += count(limits, name)
	}
	return devices, "", false
}

// statedBy returns the memory (MiB) and the cores (percent) that a container requests of each GPU, or false if it requests neither.
func statedBy(c *v1.Container) (memory, cores int64, ok bool) {
	for _, s := range stated {
		if count(c.Resources.Limits, s.count) > 0 {
			memory, cores = count(c.Resources.Limits, s.memory), count(c.Resources.Limits, s.cores)
			return memory, cores, memory > 0 || cores > 0
		}
	}
	return 0, 0, false
}
