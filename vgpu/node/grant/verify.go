package grant

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Claim is a container that is about to start, with the tickets (device IDs) that the kubelet has recorded for it.
type Claim struct {
	Pod       *v1.Pod
	Container string
	Tickets   []string
}

// Owner returns the identity of the claim's container.
func (c Claim) Owner() Owner { return Owner{c.Pod.UID, c.Pod.Namespace, c.Pod.Name, c.Container} }

// grantOf returns the grant that follows from the pod's placement, or a refusal if the placement is for another pod or node, or differs
// from what the containers request. It does not check whether the grant fits beside others.
func (c Claim) grantOf(node string) (Grant, *Refusal) {
	request, _, err := kube.RequestOf(c.Pod)
	if err != nil {
		return Grant{}, refuse(Forged, "the pod's request cannot be read: %v", err)
	}
	placement, present, err := kube.PlacementOf(c.Pod)
	switch {
	case !present:
		return Grant{}, refuse(NotPlaced, "the pod has no placement: delete it and create it again with "+
			"schedulerName: %s and without nodeName; static pods cannot have a share", kube.SchedulerName)
	case err != nil:
		return Grant{}, refuse(Forged, "%v: only the scheduler may write it; delete the pod and create it again", err)
	case placement.Node != node:
		return Grant{}, refuse(Forged, "the placement is for node %.64s, not for %s: delete the pod and create it again", placement.Node, node)
	case !kube.Satisfies(placement, request):
		return Grant{}, refuse(Forged, "the placement is not what the pod's resources ask for: delete the pod and create it again")
	}
	i := slices.IndexFunc(placement.Containers, func(p kube.PlacedContainer) bool { return p.Name == c.Container })
	if i < 0 || len(placement.Containers[i].VGPUs) != len(c.Tickets) {
		return Grant{}, refuse(Forged, "the placement of container %s does not have %d vGPUs", c.Container, len(c.Tickets))
	}
	return Grant{
		Owner: c.Owner(), Tickets: slices.Sorted(slices.Values(c.Tickets)), Model: placement.Model,
		VGPUs: placement.Containers[i].VGPUs, BestEffort: request.Enforcement == share.BestEffortEnforcement,
	}, nil
}
