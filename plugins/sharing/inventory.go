package sharing

import (
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// inventories keeps each node's inventory in the packer's terms until its annotation changes: nodes are derived whenever a
// pod comes or goes, and their GPUs hardly ever change. The zero value is empty.
type inventories struct{ byNode sync.Map }

type knownInventory struct {
	text   string
	there  bool // an empty annotation is malformed; none at all is a node without gshare
	slices []packing.Slice
	err    error
}

// of reads the node's inventory. The slices are shared: nobody may change them.
func (i *inventories) of(node *v1.Node) ([]packing.Slice, error) {
	text, there := node.Annotations[kube.AnnotationInventory]
	if last, ok := i.byNode.Load(node.Name); ok {
		if known := last.(*knownInventory); known.text == text && known.there == there {
			return known.slices, known.err
		}
	}
	decoded, _, err := kube.InventoryOf(node)
	fresh := &knownInventory{text: text, there: there, slices: nodeview.Slices(decoded), err: err}
	i.byNode.Store(node.Name, fresh)
	return fresh.slices, fresh.err
}

// forget drops all inventories, as those of nodes that are gone would stay for ever.
func (i *inventories) forget() { i.byNode.Clear() }
