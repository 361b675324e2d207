package rebalanceview

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/resource"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// Reason is why a pod with shares stays where it is, as text for users.
type Reason string

// The reasons, in the order in which they are checked.
const (
	Untrusted    Reason = "without a placement that can be trusted"
	Changed      Reason = "holds other shares than a replacement would"
	NotAgreed    Reason = "neither the pod nor its namespace has " + kube.AnnotationRebalance + ": " + kube.RebalanceAllow
	Refused      Reason = "has " + kube.AnnotationRebalance + ": " + kube.RebalanceNever
	Foreign      Reason = "another scheduler or profile places it"
	NoOwner      Reason = "no controller would replace it on another node"
	Terminating  Reason = "is terminating"
	Requirements Reason = "has requirements that are not checked: pod affinity, topology spread, volumes, host ports, claims or other resources"
	Filtered     Reason = "the filters of evictions leave it"
	TwoBudgets   Reason = "several disruption budgets apply to it"
)

// agreements holds what decides whether a pod may be moved: what users have agreed to, filters, and disruption budgets.
type agreements struct {
	namespaces map[string]string // the annotation of each namespace
	scheduler  string
	willing    func(namespace string) bool
	evictable  func(*v1.Pod) bool
	budgets    []*policy.PodDisruptionBudget
	selectors  []labels.Selector
}

func newAgreements(o Objects) *agreements {
	a := &agreements{namespaces: map[string]string{}, scheduler: o.Scheduler, willing: o.Willing, evictable: o.Evictable, budgets: o.Budgets}
	for _, n := range o.Namespaces {
		a.namespaces[n.Name] = n.Annotations[kube.AnnotationRebalance]
	}
	for _, b := range o.Budgets {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err != nil {
			selector = labels.Everything() // the API server refuses evictions under an invalid selector, too
		}
		a.selectors = append(a.selectors, selector)
	}
	return a
}

// refusal returns why a pod may not be moved, or "" if it may.
func (a *agreements) refusal(pod *v1.Pod) Reason {
	said, written := pod.Annotations[kube.AnnotationRebalance]
	if !written {
		said = a.namespaces[pod.Namespace]
	}
	switch {
	case said != "" && said != kube.RebalanceAllow:
		return Refused // an unknown value refuses, too
	case said == "" && (a.willing == nil || !a.willing(pod.Namespace)):
		return NotAgreed
	case pod.Spec.SchedulerName != a.scheduler:
		return Foreign
	case !isReplaced(pod):
		return NoOwner
	case pod.DeletionTimestamp != nil:
		return Terminating
	case len(a.budgetsOf(pod)) > 1:
		return TwoBudgets
	}
	if reason := unknownRequirement(pod); reason != "" {
		return reason
	}
	if a.evictable != nil && !a.evictable(pod) {
		return Filtered
	}
	return ""
}

// isReplaced reports whether the controller of a pod would replace it with one that may run on any node.
func isReplaced(pod *v1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind != "DaemonSet" && owner.Kind != "Node"
}

// unknownRequirement returns Requirements if a pod requires something of its node that package rebalance does not model.
func unknownRequirement(pod *v1.Pod) Reason {
	spec := &pod.Spec
	affinity := spec.Affinity != nil && (spec.Affinity.PodAffinity != nil || spec.Affinity.PodAntiAffinity != nil)
	if affinity || len(spec.TopologySpreadConstraints) > 0 || len(spec.ResourceClaims) > 0 || spec.HostNetwork {
		return Requirements
	}
	for _, v := range spec.Volumes {
		if v.PersistentVolumeClaim != nil || v.Ephemeral != nil || v.HostPath != nil || v.CSI != nil {
			return Requirements
		}
	}
	for i := range spec.Containers {
		for _, port := range spec.Containers[i].Ports {
			if port.HostPort != 0 {
				return Requirements
			}
		}
	}
	for name := range resource.PodRequests(pod, resource.PodResourcesOptions{}) {
		if name != v1.ResourceCPU && name != v1.ResourceMemory && !strings.HasPrefix(string(name), "gshare/") {
			return Requirements
		}
	}
	return ""
}

// budgetsOf returns the indexes of the disruption budgets that apply to a pod.
func (a *agreements) budgetsOf(pod *v1.Pod) (list []int) {
	for i, b := range a.budgets {
		if b.Namespace == pod.Namespace && a.selectors[i].Matches(labels.Set(pod.Labels)) {
			list = append(list, i)
		}
	}
	return list
}

// allowedBy returns how many pods a budget allows to be evicted now: none if its status is older than its specification.
func allowedBy(b *policy.PodDisruptionBudget) int {
	if b.Status.ObservedGeneration < b.Generation {
		return 0
	}
	return int(b.Status.DisruptionsAllowed)
}
