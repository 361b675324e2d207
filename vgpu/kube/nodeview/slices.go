package nodeview

import (
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Slices converts the slices of a node's inventory into those of the packer.
func Slices(inv kube.Inventory) []packing.Slice {
	out := make([]packing.Slice, len(inv.Slices))
	for i, s := range inv.Slices {
		out[i] = packing.Slice{
			ID: packing.SliceID(s.ID), Device: s.Device, Model: s.Model, Profile: s.Profile, Room: s.Room, SMs: s.SMs,
			Memory: share.Bytes(s.MemoryMiB) * share.MiB, Classes: s.Classes, Healthy: s.Healthy,
			Reserve: s.Reserve, MaxShares: s.MaxShares,
		}
	}
	return out
}

// addShares adds the shares of a placed pod to the node's slices. Shares on slices that the inventory no longer lists are skipped; they
// count again when the slice is listed again.
func addShares(n *packing.Node, o Occupant) {
	for _, c := range o.Placement.Containers {
		for _, v := range c.VGPUs {
			if i, ok := n.SliceIndex(packing.SliceID(v.Slice)); ok {
				n.Loads[i].Add(ResidentOf(o.Tenant, o.Workload, o.Placement.Model, v))
			}
		}
	}
}

// ResidentOf converts a placed vGPU of a pod, with the pod's namespace and workload, into what the packer counts on its slice.
func ResidentOf(namespace, workload string, m kube.FitModel, v kube.PlacedVGPU) packing.Resident {
	return packing.Resident{
		Tenant: namespace, Model: packing.Model(m), Class: v.Class, Share: v.Share, Use: packing.Use{Workload: workload},
	}
}
