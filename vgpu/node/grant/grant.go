// Package grant decides which container gets which part of the node's GPUs. It has no sockets, files
// or clocks: from what the kubelet recorded and the pod asks for it computes a grant or a refusal.
package grant

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Owner identifies the container that holds a grant.
type Owner struct {
	UID       types.UID // of the pod
	Namespace string
	Name      string // of the pod
	Container string
}

// ID returns an identifier of the container that is unique while its pod exists. It is short because it is part of socket paths, which are
// limited to 107 bytes.
func (o Owner) ID() string {
	sum := sha256.Sum256([]byte(string(o.UID) + "\n" + o.Container))
	return hex.EncodeToString(sum[:8])
}

// String returns namespace/pod/container, for logs.
func (o Owner) String() string { return o.Namespace + "/" + o.Name + "/" + o.Container }

// Grant is the share of the node's GPUs that the agent has given to a container. It never changes: later changes of the pod's annotations
// have no effect.
type Grant struct {
	Owner
	Tickets []string // sorted
	Model   kube.FitModel
	VGPUs   []kube.PlacedVGPU
	Since   time.Time
	// BestEffort is true if the pod accepts that its share is not enforced. Its enforcement status lists what is not.
	BestEffort bool
}

// Class returns the isolation class of the grant, which is the same on all of its slices.
func (g *Grant) Class() share.Isolation { return g.VGPUs[0].Class }

// Holds reports whether the grant has exactly these tickets, in any order.
func (g *Grant) Holds(tickets []string) bool {
	return slices.Equal(g.Tickets, slices.Sorted(slices.Values(tickets)))
}

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
