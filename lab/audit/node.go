package audit

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// amounts are quantities of resources as integers, with CPU in millicores, as kube-scheduler compares them.
type amounts map[v1.ResourceName]int64

// node is a node with its slices and with the sum of what its pods request.
type node struct {
	object   *v1.Node
	slices   []*slice // in the order of the inventory
	byID     map[string]*slice
	has      amounts
	used     amounts
	pods     int64
	doubtful bool // it holds GPU pods that nobody can place; a careful scheduler puts no other there
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
