package faults

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

var wakes = []wake{
	{
		name: "a pod that holds the share is deleted",
		prepare: func(l *lab) {
			l.addNodes(node("n", 1))
			l.addPods(gpuPod("holder", 60))
			l.waitBound("holder")
			l.addPods(gpuPod("waiting", 50))
		},
		event: func(l *lab) { l.deletePod("holder") },
	},
	{
		name: "a pod that holds the share ends",
		prepare: func(l *lab) {
			l.addNodes(node("n", 1))
			l.addPods(gpuPod("holder", 60))
			l.waitBound("holder")
			l.addPods(gpuPod("waiting", 50))
		},
		event: func(l *lab) {
			pod := l.pod("holder")
			pod.Status.Phase = v1.PodSucceeded
			_, err := l.client.CoreV1().Pods(pod.Namespace).UpdateStatus(l.ctx, pod, metav1.UpdateOptions{})
			l.must(err)
		},
	},
	{
		name:    "the first node comes",
		prepare: func(l *lab) { l.addPods(gpuPod("waiting", 50)) },
		event:   func(l *lab) { l.addNodes(node("n", 1)) },
	},
	{
		name: "another node comes",
		prepare: func(l *lab) {
			l.addNodes(node("full", 1))
			l.addPods(gpuPod("holder", 100))
			l.waitBound("holder")
			l.addPods(gpuPod("waiting", 50))
		},
		event: func(l *lab) { l.addNodes(node("n", 1)) },
	},
	{
		name: "the inventory gains a slice",
		prepare: func(l *lab) {
			n := node("n", 2)
			n.Annotations[kube.AnnotationInventory] = encode(inventory("n", 1))
			l.addNodes(n)
			l.addPods(gpuPod("holder", 100))
			l.waitBound("holder")
			l.addPods(gpuPod("waiting", 50))
		},
		event: func(l *lab) { l.setInventory("n", encode(inventory("n", 2))) },
	},
	{
		name: "the inventory is published",
		prepare: func(l *lab) {
			n := node("n", 1)
			delete(n.Annotations, kube.AnnotationInventory)
			l.addNodes(n)
			l.addPods(gpuPod("waiting", 50))
		},
		event: func(l *lab) { l.setInventory("n", encode(inventory("n", 1))) },
	},
	{
		name: "the node's resources are advertised, after its inventory",
		prepare: func(l *lab) {
			l.addNodes(node("n", 1, func(n *v1.Node) { delete(n.Status.Allocatable, kube.ResourceSMTime) }))
			l.addPods(gpuPod("waiting", 50))
		},
		event: func(l *lab) {
			n, err := l.client.CoreV1().Nodes().Get(l.ctx, "n", metav1.GetOptions{})
			l.must(err)
			n.Status.Allocatable[kube.ResourceSMTime] = quantity("10000")
			_, err = l.client.CoreV1().Nodes().UpdateStatus(l.ctx, n, metav1.UpdateOptions{})
			l.must(err)
		},
	},
	{
		name: "a node is no longer cordoned, and the others are full",
		prepare: func(l *lab) {
			l.addNodes(node("full", 1))
			l.addPods(gpuPod("holder", 100))
			l.waitBound("holder")
			l.addNodes(node("n", 1, func(n *v1.Node) { n.Spec.Unschedulable = true }))
			l.addPods(gpuPod("waiting", 50))
		},
		event: func(l *lab) { l.cordon("n", false) },
	},
	{
		name: "a slice gets well",
		prepare: func(l *lab) {
			n, ill := node("n", 1), inventory("n", 1)
			ill.Slices[0].Healthy = false
			n.Annotations[kube.AnnotationInventory] = encode(ill)
			l.addNodes(n)
			l.addPods(gpuPod("waiting", 50))
		},
		event: func(l *lab) { l.setInventory("n", encode(inventory("n", 1))) },
	},
	{
		name: "the pod's unknown annotation is corrected",
		prepare: func(l *lab) {
			l.addNodes(node("n", 1))
			l.addPods(gpuPod("waiting", 50, annotated(kube.AnnotationClass, "gold")))
		},
		event: func(l *lab) { l.annotatePod("waiting", kube.AnnotationClass, "slo") },
	},
	{
		name: "the pod accepts a model that is there",
		prepare: func(l *lab) {
			l.addNodes(node("n", 1))
			l.addPods(gpuPod("waiting", 50, annotated(kube.AnnotationModel, "H200")))
		},
		event: func(l *lab) { l.annotatePod("waiting", kube.AnnotationModel, "H200,"+gpuModel) },
	},
}
