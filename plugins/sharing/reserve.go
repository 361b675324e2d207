package sharing

import (
	"context"
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/plugins/ledger"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// Reserve chooses the slices and promises them. It may run several times for one pod: simulations of a group reserve and
// unreserve, and the commit then reserves again with the same state.
func (p *Plugin) Reserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	c, status := p.cycleOf(state)
	if status != nil || !c.asks {
		return status
	}
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(nodeName)
	if err != nil {
		return fwk.AsStatus(err)
	}
	node, plan, err := p.choose(state, c, pod, info)
	if err != nil {
		return lost(state, err.Error())
	}
	placement := placementOf(pod.UID, node, p.rules.Model, c.pod, plan)
	p.ledger.Reserve(ledger.Promise{
		Placement: placement, Tenant: pod.Namespace, Name: pod.Name, Workload: c.pod.Request.Workload,
	}, c.attempt)
	p.wide.remove(pod.UID)
	return nil
}

// choose plans the pod on the node, which is derived without the pod itself. Outside group simulations every promise on the
// node counts, also of pods that the snapshot does not show yet.
func (p *Plugin) choose(state fwk.CycleState, c *cycle, pod *v1.Pod, info fwk.NodeInfo) (*packing.Node, packing.Plan, error) {
	var promises []ledger.Promise
	if !state.IsPodGroupSchedulingCycle() {
		promises = p.livePromises(info.Node().Name)
	}
	node, doubt := p.derive(info, pod.UID, promises)
	if doubt != nil {
		return nil, nil, doubt
	}
	if plan, ok := p.besideNominees(c, pod, info, node, promises); ok {
		return node, plan, nil
	}
	plan, _, refusal := p.fleet.packer.Place(node, c.pod)
	if refusal != packing.Admitted {
		return nil, nil, errors.New(refusal.String())
	}
	return node, plan, nil
}

// besideNominees plans the pod so that pods which the framework counted while it filtered keep the room that others were
// evicted for. There is no such plan where the room of pods that are ending is needed already.
func (p *Plugin) besideNominees(c *cycle, pod *v1.Pod, info fwk.NodeInfo, node *packing.Node, promises []ledger.Promise) (packing.Plan, bool) {
	counted := slices.DeleteFunc(p.handle.NominatedPodsForNode(node.Name), func(n fwk.PodInfo) bool {
		return n.GetPod().UID == pod.UID || nodeview.Priority(n.GetPod()) < nodeview.Priority(pod)
	})
	if len(counted) == 0 {
		return nil, false
	}
	crowded := info.Snapshot()
	for _, nominee := range counted {
		crowded.AddPodInfo(nominee)
	}
	later, doubt := p.derive(crowded, pod.UID, promises)
	if doubt != nil {
		return nil, false
	}
	plan, _, refusal := p.fleet.packer.Place(later, c.pod)
	return plan, refusal == packing.Admitted && p.fleet.packer.Admits(node, c.pod, plan)
}

// livePromises leaves out the promises to pods that the informer no longer has. Their deletion may have woken the pod at hand
// before it reached the ledger.
func (p *Plugin) livePromises(nodeName string) []ledger.Promise {
	return slices.DeleteFunc(p.ledger.OnNode(nodeName), func(q ledger.Promise) bool {
		return !p.knows(q.Tenant, q.Name, q.UID)
	})
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
