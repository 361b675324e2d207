package nodeview

import (
	v1 "k8s.io/api/core/v1"
	corev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Eligibility is whether Kubernetes' own conditions let a pod on a node, as far as they depend on these two alone.
type Eligibility int

// The results of EligibilityCheck.On.
const (
	Eligible Eligibility = iota
	Cordoned
	Tainted
	NotSelected // by node selector or required node affinity
)

// EligibilityCheck checks one pod against nodes: cordon, taints, node selector and required node affinity.
type EligibilityCheck struct {
	pod      *v1.Pod
	affinity nodeaffinity.RequiredNodeAffinity
}

// NewEligibilityCheck returns a check for the pod, whose affinity it parses once for all nodes.
func NewEligibilityCheck(pod *v1.Pod) EligibilityCheck {
	return EligibilityCheck{pod, nodeaffinity.GetRequiredNodeAffinity(pod)}
}

// On returns whether the pod may run on the node, and for Cordoned and Tainted the taint that keeps it off.
func (v EligibilityCheck) On(node *v1.Node) (Eligibility, v1.Taint) {
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
	return Eligible, v1.Taint{}
}

// comparisons makes tolerations with numeric operators match. Where the scheduler's feature gate for them is off, its own filter
// refuses such pods; a check stricter than that filter would leave out the best node.
const comparisons = true

// cordon is the taint that stands for a cordoned node: a pod that tolerates it may go there.
var cordon = v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}

func hardTaint(t *v1.Taint) bool {
	return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
}
