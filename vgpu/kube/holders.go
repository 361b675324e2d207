package kube

import v1 "k8s.io/api/core/v1"

// Holders names the containers that ask for vGPUs, so that the kubelet has device IDs for them once it has admitted the pod.
func Holders(pod *v1.Pod) (names []string) {
	for c := range containers(pod) {
		if n, ok := c.Resources.Limits[ResourceVGPU]; ok && !n.IsZero() {
			names = append(names, c.Name)
		}
	}
	return names
}
