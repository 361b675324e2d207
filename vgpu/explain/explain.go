// Package explain finds out why slices refuse a pod, and the smallest change to its request that would admit it. It decides nothing
// itself: it runs the packer on changed requests.
package explain

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Search finds changes to a pod's request that let it fit one of the given nodes. Changes of two quantities are tried on the first nodes
// only.
type Search struct {
	Packer packing.Packer
	Nodes  []*packing.Node
	Pod    *packing.Pod
}

// SliceRefusals returns, for each slice of a node, why it refuses each container of the pod, every container taken alone.
func SliceRefusals(rules packing.Rules, n *packing.Node, pod *packing.Pod) [][]packing.Refusal {
	out := make([][]packing.Refusal, len(n.Slices))
	for i := range n.Slices {
		for _, c := range pod.Request.Containers {
			ask := packing.ShareRequest{Tenant: pod.Tenant, Terms: pod.Request.Terms, Share: c.Share}
			_, refusal := rules.Admit(&n.Slices[i], &n.Loads[i], ask)
			out[i] = append(out[i], refusal)
		}
	}
	return out
}

// findNode returns the index of the first node that the changed request fits, or -1.
func (q *Search) findNode(r share.Request) int {
	if r.Validate() != nil || r.ValidateDevices() != nil {
		return nowhere
	}
	pod := *q.Pod
	pod.Request = r
	return slices.IndexFunc(q.Nodes, func(n *packing.Node) bool {
		_, _, refusal := q.Packer.Place(n, &pod)
		return refusal == packing.Admitted
	})
}

const nowhere = -1

// cloneRequest copies the request and its list of containers, which is all that changes modify.
func cloneRequest(r share.Request) share.Request {
	r.Containers = slices.Clone(r.Containers)
	return r
}
