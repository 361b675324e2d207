// Package explain says why slices refuse a pod, and which smallest change of what it asks for would let it in. Every verdict
// is the packer's own: this package asks it about other requests, and decides nothing itself.
package explain

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Question is a pod that looks for a place on one of some nodes. Changes of two quantities are sought on the first nodes only.
type Question struct {
	Packer packing.Packer
	Nodes  []*packing.Node
	Pod    *packing.Pod
}

// Slices tells for each slice of a node why it refuses each container of the pod, every container taken alone.
func Slices(rules packing.Rules, n *packing.Node, pod *packing.Pod) [][]packing.Refusal {
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

// fits says on which node a changed request would have room; -1 on none.
func (q *Question) fits(r share.Request) int {
	if r.Validate() != nil || r.Attachable() != nil {
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

// clone copies the request as deep as changes go.
func clone(r share.Request) share.Request {
	r.Containers = slices.Clone(r.Containers)
	return r
}
