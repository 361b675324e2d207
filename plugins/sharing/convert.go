package sharing

import (
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"

	"k8s.io/apimachinery/pkg/types"
)

// placementOf converts the packer's plan for a pod, which slice of the node each vGPU gets, into the placement that is written as an
// annotation.
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
