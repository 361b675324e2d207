package nodeview

import (
	v1 "k8s.io/api/core/v1"
	resource "k8s.io/component-helpers/resource"
	corev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Eligibility is the result of checking those conditions of Kubernetes that depend on one pod and one node alone: cordon, taints, node
// selector and required node affinity.
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

// enableNumericOperators makes tolerations with numeric operators match. If the scheduler's feature gate for them is off, its own filter
// refuses such pods anyway; a check stricter than that filter would leave out the best node.
const enableNumericOperators = true

// cordonTaint is the taint that stands for a cordoned node: a pod that tolerates it may be placed there.
var cordonTaint = v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}

func hardTaint(t *v1.Taint) bool {
	return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
}

// PodRequest holds the decoded share request, placement and residency of one version of a pod.
type PodRequest struct {
	Pod          packing.Pod
	Asks         bool  // the pod requests a resource of gshare, even if RequestErr is set
	RequestErr   error // why the request is invalid; the text of an event
	Placement    kube.Placement
	Placed       bool // the pod has a placement, even if PlacementErr is set
	PlacementErr error
	Level        residency.Level // at which the pod counts on the slices of its placement
	Kept         share.Bytes     // what each of its vGPUs keeps of its memory there at level Warm
}

// PodRequestOf decodes the share request and the placement of a pod. Errors are returned in the fields of the result.
func PodRequestOf(pod *v1.Pod) *PodRequest {
	s := &PodRequest{}
	var request share.Request
	request, s.Asks, s.RequestErr = kube.RequestOf(pod)
	s.Placement, s.Placed, s.PlacementErr = kube.PlacementOf(pod)
	if s.RequestErr == nil && !s.Placed {
		s.RequestErr = request.ValidateDevices()
	}
	s.Pod = packing.Pod{Tenant: pod.Namespace, Request: request}
	if s.Placed && s.PlacementErr == nil && s.Asks && s.RequestErr == nil && !kube.Satisfies(s.Placement, request) {
		s.PlacementErr = ErrPlacement
	}
	requests := resource.PodRequests(pod, resource.PodResourcesOptions{})
	s.Pod.CPU = packing.MilliCPU(requests.Cpu().MilliValue())
	s.Pod.RAM = share.Bytes(requests.Memory().Value())
	s.Level, s.Kept = kube.LevelOf(pod), kube.KeptOf(pod)
	return s
}
