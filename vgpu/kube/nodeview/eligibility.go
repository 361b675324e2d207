package nodeview

import (
	v1 "k8s.io/api/core/v1"
	corev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Eligibility is the result of checking the Kubernetes conditions that depend on one pod and one node alone: cordon, taints, node selector
// and required node affinity.
type Eligibility int

// The results of EligibilityCheck.On.
const (
	Eligible Eligibility = iota
	Cordoned
	Tainted
	NotSelected // by node selector or required node affinity
)

// EligibilityCheck checks whether nodes are eligible for one pod: cordon, taints, node selector and required node affinity.
type EligibilityCheck struct {
	pod      *v1.Pod
	affinity nodeaffinity.RequiredNodeAffinity
}

// NewEligibilityCheck returns a check of nodes for the pod. It parses the pod's affinity once for all nodes.
func NewEligibilityCheck(pod *v1.Pod) EligibilityCheck {
	return EligibilityCheck{pod, nodeaffinity.GetRequiredNodeAffinity(pod)}
}

// Check returns whether the pod may run on the node, and for Cordoned and Tainted the taint that excludes it.
func (v EligibilityCheck) Check(node *v1.Node) (Eligibility, v1.Taint) {
	tolerations := v.pod.Spec.Tolerations
	if node.Spec.Unschedulable && !corev1.TolerationsTolerateTaint(klog.Background(), tolerations, &cordonTaint, enableNumericOperators) {
		return Cordoned, cordonTaint
	}
	taint, tainted := corev1.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, tolerations, hardTaint, enableNumericOperators)
	if tainted {
		return Tainted, taint
	}
	if ok, err := v.affinity.Match(node); !ok || err != nil {
		return NotSelected, v1.Taint{}
	}
	return Eligible, v1.Taint{}
}

// enableNumericOperators makes tolerations with numeric operators match. Where the scheduler's feature gate for them is off, its own filter
// refuses such pods; a check stricter than that filter would leave out the best node.
const enableNumericOperators = true

// cordonTaint is the taint that stands for a cordoned node: a pod that tolerates it may be placed there.
var cordonTaint = v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}

func hardTaint(t *v1.Taint) bool {
	return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
}
