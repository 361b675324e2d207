package sharing

import (
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"

	"k8s.io/apimachinery/pkg/types"
)

// slicesOf puts an inventory into the packer's terms.
func slicesOf(inv kube.Inventory) []packing.Slice {
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

// addPlacement loads a node with a placement. A share on a slice that the inventory no longer lists takes nothing: the
// slice is gone, and when it comes back the share counts again.
func addPlacement(n *packing.Node, tenant, workload string, p kube.Placement) {
	for _, c := range p.Containers {
		for _, v := range c.VGPUs {
			if i, ok := n.SliceIndex(packing.SliceID(v.Slice)); ok {
				n.Loads[i].Add(packing.Resident{
					Tenant: tenant, Model: packing.Model(p.Model), Class: v.Class, Share: v.Share, Use: packing.Use{Workload: workload},
				})
			}
		}
	}
}

// placementOf writes a plan down.
func placementOf(uid types.UID, node *packing.Node, m packing.Model, pod *packing.Pod, plan packing.Plan) kube.Placement {
	out := kube.Placement{Node: node.Name, UID: uid, Model: kube.FitModel(m)}
	for c, picks := range plan {
		container := pod.Request.Containers[c]
		placed := kube.PlacedContainer{Name: container.Name}
		for _, pick := range picks {
			placed.VGPUs = append(placed.VGPUs, kube.PlacedVGPU{
				Slice: string(node.Slices[pick.Slice].ID), Class: pick.Class,
				Priority: pod.Request.Priority, Share: container.Share,
			})
		}
		out.Containers = append(out.Containers, placed)
	}
	return out
}
