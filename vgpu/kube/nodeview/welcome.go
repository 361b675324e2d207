package nodeview

import (
	v1 "k8s.io/api/core/v1"
	corev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Welcome is what stock Kubernetes says of a pod on a node, as far as it follows from the two alone.
type Welcome int

// The answers.
const (
	Welcomed Welcome = iota
	Cordoned
	Tainted
	NotSelected // by node selector or required node affinity
)

// Visitor asks nodes whether they take a pod.
type Visitor struct {
	pod      *v1.Pod
	affinity nodeaffinity.RequiredNodeAffinity
}

// NewVisitor reads the pod once for all nodes.
func NewVisitor(pod *v1.Pod) Visitor { return Visitor{pod, nodeaffinity.GetRequiredNodeAffinity(pod)} }

// At asks a node; the taint is the one that keeps the pod off, if that is the answer.
func (v Visitor) At(node *v1.Node) (Welcome, v1.Taint) {
	tolerations := v.pod.Spec.Tolerations
	if node.Spec.Unschedulable && !corev1.TolerationsTolerateTaint(klog.Background(), tolerations, &cordon, comparisons) {
		return Cordoned, cordon
	}
	taint, tainted := corev1.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, tolerations, hardTaint, comparisons)
	if tainted {
		return Tainted, taint
	}
	if ok, err := v.affinity.Match(node); !ok || err != nil {
		return NotSelected, v1.Taint{}
	}
	return Welcomed, v1.Taint{}
}

// comparisons lets tolerations compare numbers. Where the scheduler's feature for it is off no such toleration exists, or its
// filter refuses it; a check stricter than that filter would leave out the best node.
const comparisons = true

// cordon is the taint that stands for a cordoned node: a pod that tolerates it may go there.
var cordon = v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}

func hardTaint(t *v1.Taint) bool {
	return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
}
