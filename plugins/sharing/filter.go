package sharing

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"

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
	node, doubt := p.node(c, info)
	if doubt != nil {
		return distrust(doubt)
	}
	_, _, refusal := p.fleet.packer.Place(node, c.pod)
	return refuse(refusal)
}

// node is the occupancy of the NodeInfo: as synced if it is the snapshot's own, else derived from what it holds now.
func (p *Plugin) node(c *cycle, info fwk.NodeInfo) (*packing.Node, error) {
	if !c.group {
		if node, doubt, ok := p.fleet.at(info); ok {
			return node, doubt
		}
	}
	return p.derive(info, p.fleet.packer, types.UID(""), nil)
}

// distrust refuses a node in doubt. Only the space of a nominated pod may be won by preemption.
func distrust(doubt error) *fwk.Status {
	if errors.Is(doubt, errNominated) {
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
