package kube

import v1 "k8s.io/api/core/v1"

// BoundAs reports whether the pod is bound exactly as in the binding: to the same node and with the same placement.
func BoundAs(pod *v1.Pod, b *v1.Binding) bool {
	return pod.UID == b.UID && pod.Spec.NodeName == b.Target.Name &&
		pod.Annotations[AnnotationPlacement] == b.Annotations[AnnotationPlacement]
}
