package sharing

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// Filter refuses nodes whose slices cannot hold the pod, and nodes whose inventory or placements cannot be trusted.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	c, status := p.cycleOf(state)
	if status != nil {
		return status
	}
	if !c.hasShare {
		return nil
	}
	_, status = p.evaluateNode(c, info)
	return status
}

// evaluateNode returns the node's rank for the pod, where lower is better, or the status that refuses the node.
func (p *Plugin) evaluateNode(c *cycle, info fwk.NodeInfo) (packing.Rank, *fwk.Status) {
	if i, synced := p.fleet.indexOf(info); synced && !c.isGroup {
		err := p.fleet.untrusted[i]
		if rank, refusal, known := p.fleet.ranks.CachedRank(c.key, i); known && err == nil {
			return rank, refusalStatus(refusal)
		}
		return p.rankNode(c, p.fleet.ranks.Node(i), err)
	}
	node, err := p.deriveNode(info, "", nil) // the NodeInfo differs from the fleet's: nominated pods, a dry run or the simulation of a group
	return p.rankNode(c, node, err)
}

// rankNode returns the rank of the node for the pod, or the status that refuses it. A non-nil err says why the node is untrusted, which
// refuses every pod with a share.
func (p *Plugin) rankNode(c *cycle, node *packing.Node, err error) (packing.Rank, *fwk.Status) {
	if err != nil && c.hasShare {
		return 0, untrustedStatus(err)
	}
	_, rank, refusal := p.fleet.packer.Place(node, c.pod)
	return rank, refusalStatus(refusal)
}

// untrustedStatus returns the status for a node that cannot be trusted. Preemption can help only if the reason is that space is kept for a
// nominated pod.
func untrustedStatus(err error) *fwk.Status {
	if errors.Is(err, nodeview.ErrNominated) {
		return fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
}

// refusalStatus converts the packer's refusal into a status, whose code tells preemption whether evicting pods can help. It returns nil if
// the pod is admitted.
func refusalStatus(r packing.Refusal) *fwk.Status {
	switch {
	case r == packing.Admitted:
		return nil
	case r.NeverFits():
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, r.String())
	}
	return fwk.NewStatus(fwk.Unschedulable, r.String())
}
