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

// advice holds, for each reason for which the packer refuses a pod, what a user or an administrator can do about it.
var advice = [...]string{
	packing.NoSlices:          "an administrator has to run the node agent there",
	packing.WrongKind:         "gshare.dev/slice asks for another kind of slice than the node has",
	packing.WrongModel:        "name a model of the node in gshare.dev/model, or name none",
	packing.Unhealthy:         "the node agent takes no new pods on these slices: they have failed, are cordoned or used by others, or the agent is being replaced; explain and doctor say which",
	packing.NotEnforceable:    "leave out gshare.dev/isolation, or let the node's agent offer the class (MPS has to work there for mps and elastic)",
	packing.TooLarge:          "ask for less than one slice has, or for more vGPUs",
	packing.TooFewDevices:     "ask for no more vGPUs than the node has GPUs: they are all on one node",
	packing.OtherClass:        "a slice has one isolation class at a time: wait until one is empty, or ask for the class that it has",
	packing.OtherPackingModel: "a slice has one packing model at a time: wait until one is empty, or use the scheduler name of its pods",
	packing.OtherTenant:       "a slice is for one namespace at a time: wait until one is empty, or an administrator sets tenancy: mixed for the node agents and the scheduler",
	packing.SliceFull:         "wait until a pod there ends: the slice has as many shares as its node allows",
	packing.NoMemory:          "ask for less gshare/mem, or wait until a pod there ends",
	packing.OverLimits:        "lower gshare.dev/sm-limit or gshare.dev/quota-limit, or wait until a pod there ends",
	packing.NoSMTime:          "ask for less gshare/sm or gshare/quota, or wait until a pod there ends",
	packing.NoJointPlacement:  "each container would fit alone: ask for less, or put them into pods of their own",
}

// Advice returns a clause on what a user or an administrator can do about a refusal, or "" if nothing was refused.
func Advice(r packing.Refusal) string { return advice[r] }
