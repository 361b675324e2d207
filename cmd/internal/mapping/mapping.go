// Package mapping converts a node and the placements of its pods to the slices that gpumap draws.
package mapping

import (
	"cmp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/cmd/internal/gpumap"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// Slice is a slice to be drawn by package gpumap, with the ID that gshare publishes for it.
type Slice struct {
	gpumap.Slice
	ID string
}

// Of returns the slices of a node, for drawing. On them are the shares of the pods that are bound to the node and have not terminated, each with
// what counts of it. Pods without a placement are left out. A node without a valid inventory annotation has no slices.
func Of(node *v1.Node, pods []*v1.Pod) (list []Slice) {
	inventory, _, err := kube.InventoryOf(node)
	if err != nil {
		return nil
	}
	d := &nodeview.OccupancyBuilder{Node: packing.NewNode(node.Name, nodeview.Slices(inventory), 0, 0), PodRequest: nodeview.PodRequestOf}
	for _, pod := range pods {
		d.AddPod(pod)
	}
	for i := range d.Node.Slices {
		list = append(list, drawn(d, i, inventory.RulesOrDefault().Window.Duration))
	}
	return list
}

func drawn(d *nodeview.OccupancyBuilder, i int, window time.Duration) Slice {
	s := &d.Node.Slices[i]
	out := Slice{ID: string(s.ID), Slice: gpumap.Slice{
		Node: d.Node.Name, Index: i, Model: strings.TrimSpace(s.Model + " " + s.Profile), Window: window, Reserve: s.Reserve, MemoryTotal: s.Memory,
	}}
	for _, o := range d.Occupants() {
		for _, c := range o.Placement.Containers {
			for _, v := range c.VGPUs {
				if v.Slice == out.ID {
					out.Rectangles = o.Placement.Model == kube.Rectangles
					out.Shares = append(out.Shares, gpumap.Share{Pod: o.Pod.Namespace + "/" + o.Pod.Name + "/" + c.Name, Share: o.Charge(v)})
				}
			}
		}
	}
	slices.SortStableFunc(out.Shares, func(a, b gpumap.Share) int { return cmp.Compare(a.Pod, b.Pod) })
	return out
}
