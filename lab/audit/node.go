package audit

import (
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
	corev1 "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// amounts are quantities of resources as integers, with CPU in millicores, as kube-scheduler compares them.
type amounts map[v1.ResourceName]int64

// node is a node with its slices and the sum of its pods' requests.
type node struct {
	object   *v1.Node
	slices   []*slice // in the order of the inventory
	byID     map[string]*slice
	has      amounts
	used     amounts
	pods     int64
	doubtful bool // it holds GPU pods whose placement is unknown; a careful scheduler puts no others there
}

func newNode(object *v1.Node) (*node, error) {
	n := &node{object: object, byID: map[string]*slice{}, has: amounts{}, used: amounts{}}
	n.has.add(object.Status.Allocatable)
	inventory, _, err := kube.InventoryOf(object)
	if err != nil {
		n.doubtful = true
		return n, err
	}
	for i := range inventory.Slices {
		s := &slice{Slice: inventory.Slices[i]}
		n.slices = append(n.slices, s)
		n.byID[s.ID] = s
	}
	return n, nil
}

// addPod adds the requests of a pod that is bound to the node.
func (n *node) addPod(pod *v1.Pod) {
	n.pods++
	n.used.add(requestsOf(pod))
}

// hasSpare reports whether the node has enough unrequested resources for one more pod.
func (n *node) hasSpare(wanted amounts) bool {
	if n.pods >= n.has[v1.ResourcePods] {
		return false
	}
	for name, amount := range wanted {
		if amount > 0 && n.used[name]+amount > n.has[name] {
			return false
		}
	}
	return true
}

func requestsOf(pod *v1.Pod) v1.ResourceList {
	return resource.PodRequests(pod, resource.PodResourcesOptions{})
}

func (a amounts) add(list v1.ResourceList) {
	for name, quantity := range list {
		if name == v1.ResourceCPU {
			a[name] += quantity.MilliValue()
		} else {
			a[name] += quantity.Value()
		}
	}
}

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
