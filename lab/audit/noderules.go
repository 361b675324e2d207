package audit

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	corev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

func (c *checker) checkResources(n *node) {
	for _, name := range slices.Sorted(maps.Keys(n.used)) {
		if used, has := n.used[name], n.has[name]; used > has {
			c.violate(Violation{Kind: Resources, Node: n.object.Name}, "%s: %d of %d are requested", name, used, has)
		}
	}
	if has := n.has[v1.ResourcePods]; n.pods > has {
		c.violate(Violation{Kind: TooManyPods, Node: n.object.Name}, "%d pods where %d may be", n.pods, has)
	}
}

// checkEligibility checks that a bound pod matches the node's labels and tolerates its taints. It ignores cordons, because they do not
// affect bound pods, and the taints that Kubernetes derives from node conditions.
func (c *checker) checkEligibility(n *node, pod *v1.Pod) {
	at := Violation{Node: n.object.Name, Pod: nameOf(pod)}
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(n.object); !ok || err != nil {
		at.Kind = Affinity
		c.violate(at, "the node does not match the pod's node selector or required affinity")
	}
	if taint, found := untoleratedTaint(n.object, pod, lastingTaint); found {
		at.Kind = Tainted
		c.violate(at, "the pod does not tolerate the taint %s", taint.ToString())
	}
}

// untoleratedTaint returns a taint of the node that the pod does not tolerate, among those that the filter accepts.
func untoleratedTaint(n *v1.Node, pod *v1.Pod, counts func(*v1.Taint) bool) (v1.Taint, bool) {
	return corev1.FindMatchingUntoleratedTaint(klog.Background(), n.Spec.Taints, pod.Spec.Tolerations, counts, false)
}

func hardTaint(t *v1.Taint) bool {
	return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
}

// conditionTaints is the key prefix of the taints that Kubernetes derives from node conditions.
const conditionTaints = "node.kubernetes.io/"

func lastingTaint(t *v1.Taint) bool {
	return hardTaint(t) && !strings.HasPrefix(t.Key, conditionTaints)
}
