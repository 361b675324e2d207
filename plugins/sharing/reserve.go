package sharing

import (
	"context"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/plugins/ledger"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// Reserve chooses the slices and promises them. It may run several times for one pod: simulations of a group reserve and
// unreserve, and the commit then reserves again with the same state.
func (p *Plugin) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	c, status := p.cycleOf(state)
	if status != nil || !c.asks {
		return status
	}
	node, status := p.nodeForReserve(state, pod, nodeName)
	if status != nil {
		return status
	}
	plan, _, refusal := p.fleet.packer.Place(node, c.pod)
	if refusal != packing.Admitted {
		return lost(state, refusal.String())
	}
	placement := placementOf(pod.UID, node, p.rules.Model, c.pod, plan)
	p.ledger.Reserve(ledger.Promise{Placement: placement, Tenant: pod.Namespace}, c.attempt)
	p.wide.remove(pod.UID)
	return nil
}

// nodeForReserve derives the node without the pod itself. Outside group simulations every promise on the node counts, also
// of pods that the snapshot does not show yet.
func (p *Plugin) nodeForReserve(state fwk.CycleState, pod *v1.Pod, nodeName string) (*packing.Node, *fwk.Status) {
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(nodeName)
	if err != nil {
		return nil, fwk.AsStatus(err)
	}
	var promises []ledger.Promise
	if !state.IsPodGroupSchedulingCycle() {
		promises = p.ledger.OnNode(nodeName)
	}
	node, doubt := p.derive(info, pod.UID, promises)
	if doubt != nil {
		return nil, lost(state, doubt.Error())
	}
	return node, nil
}

// lost refuses a node that Filter admitted. Outside simulations that is due to a promise which the snapshot does not show
// any more, or not yet. No event may follow that would wake the pod, so it goes to the backoff queue, as after an error.
func lost(state fwk.CycleState, reason string) *fwk.Status {
	if state.IsPodGroupSchedulingCycle() {
		return fwk.NewStatus(fwk.Unschedulable, reason)
	}
	return fwk.NewStatus(fwk.Error, "node changed since it was filtered: "+reason)
}

// Unreserve takes back this attempt's promise only. It is called also when Reserve never ran, and after a failed bind, which
// returns only when it is certain that the pod was not bound.
func (p *Plugin) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	if c, status := p.cycleOf(state); status == nil {
		p.ledger.Unreserve(pod.UID, c.attempt)
	}
}
