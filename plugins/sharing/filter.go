package sharing

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// Filter refuses nodes whose slices cannot hold the pod, and untrusted nodes.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	c, status := p.cycleOf(state)
	if status != nil {
		return status
	}
	if !c.asks {
		return nil
	}
	_, status = p.evaluate(c, info)
	return status
}

// evaluate returns the node's rank for the pod, or the status of a refusal.
func (p *Plugin) evaluate(c *cycle, info fwk.NodeInfo) (packing.Rank, *fwk.Status) {
	if i, synced := p.fleet.at(info); synced && !c.group {
		err := p.fleet.untrusted[i]
		if rank, refusal, known := p.fleet.ranks.CachedRank(c.key, i); known && err == nil {
			return rank, refuse(refusal)
		}
		return p.place(c, p.fleet.ranks.Node(i), err)
	}
	node, err := p.derive(info, "", nil) // with nominated pods, in a dry run or in the simulation of a group
	return p.place(c, node, err)
}

// place returns the rank of a derived node for the pod; err is why the node is untrusted, or nil.
func (p *Plugin) place(c *cycle, node *packing.Node, err error) (packing.Rank, *fwk.Status) {
	if err != nil && c.asks {
		return 0, refuseUntrusted(err)
	}
	_, rank, refusal := p.fleet.packer.Place(node, c.pod)
	return rank, refuse(refusal)
}

// refuseUntrusted returns the status for an untrusted node. Preemption can help only where the space is kept for a nominated pod.
func refuseUntrusted(err error) *fwk.Status {
	if errors.Is(err, nodeview.ErrNominated) {
		return fwk.NewStatus(fwk.Unschedulable, err.Error())
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, err.Error())
}

// refuse returns the status for a refusal, which tells preemption whether evicting pods can help.
func refuse(r packing.Refusal) *fwk.Status {
	switch {
	case r == packing.Admitted:
		return nil
	case r.NeverFits():
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, r.String())
	}
	return fwk.NewStatus(fwk.Unschedulable, r.String())
}
