package sharing

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// Filter refuses nodes whose slices cannot take the pod, and nodes whose occupancy is in doubt.
func (p *Plugin) Filter(_ context.Context, state fwk.CycleState, _ *v1.Pod, info fwk.NodeInfo) *fwk.Status {
	c, status := p.cycleOf(state)
	if status != nil {
		return status
	}
	if !c.asks {
		return nil
	}
	_, status = p.ask(c, info)
	return status
}

// ask tells how the node ranks for the pod, or why it refuses it.
func (p *Plugin) ask(c *cycle, info fwk.NodeInfo) (packing.Rank, *fwk.Status) {
	if i, synced := p.fleet.at(info); synced && !c.group {
		doubt := p.fleet.doubts[i]
		if rank, refusal, known := p.fleet.ranks.CachedRank(c.key, i); known && doubt == nil {
			return rank, refuse(refusal)
		}
		return p.place(c, p.fleet.ranks.Node(i), doubt)
	}
	node, doubt := p.derive(info, "", nil) // with nominated pods, in a dry run or in the simulation of a group
	return p.place(c, node, doubt)
}

func (p *Plugin) place(c *cycle, node *packing.Node, doubt error) (packing.Rank, *fwk.Status) {
	if doubt != nil && c.asks {
		return 0, distrust(doubt)
	}
	_, rank, refusal := p.fleet.packer.Place(node, c.pod)
	return rank, refuse(refusal)
}

// distrust refuses a node in doubt. Only the space of a nominated pod may be won by preemption.
func distrust(doubt error) *fwk.Status {
	if errors.Is(doubt, nodeview.ErrNominated) {
		return fwk.NewStatus(fwk.Unschedulable, doubt.Error())
	}
	return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, doubt.Error())
}

// refuse tells preemption whether evicting pods could help.
func refuse(r packing.Refusal) *fwk.Status {
	switch {
	case r == packing.Admitted:
		return nil
	case r.NeverFits():
		return fwk.NewStatus(fwk.UnschedulableAndUnresolvable, r.String())
	}
	return fwk.NewStatus(fwk.Unschedulable, r.String())
}
