package sharing

import (
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// inventories caches the decoded slices of each node until its inventory annotation changes: occupancy is derived whenever a pod is added
// or deleted, while GPUs hardly ever change.
type inventories struct {
	profile string     // of the scheduler configuration
	assumed kube.Rules // of nodes, by the profile
	byNode  sync.Map
}

type knownInventory struct {
	text   string
	there  bool // whether the node has the annotation: an empty one is malformed, none is a node without gshare
	slices []packing.Slice
	err    error
}

// slicesOf returns the slices in the node's inventory, or why the inventory is malformed or its rules are not those that the profile
// assumes. The caller must not modify the slices.
func (i *inventories) slicesOf(node *v1.Node) ([]packing.Slice, error) {
	text, there := node.Annotations[kube.AnnotationInventory]
	if last, ok := i.byNode.Load(node.Name); ok {
		if known := last.(*knownInventory); known.text == text && known.there == there {
			return known.slices, known.err
		}
	}
	decoded, _, err := kube.InventoryOf(node)
	if err == nil {
		err = nodeview.CheckRules(i.profile, i.assumed, decoded.Rules)
	}
	fresh := &knownInventory{text: text, there: there, slices: nodeview.Slices(decoded), err: err}
	i.byNode.Store(node.Name, fresh)
	return fresh.slices, fresh.err
}

// clear removes all entries, so that those of deleted nodes do not stay for ever.
func (i *inventories) clear() { i.byNode.Clear() }
