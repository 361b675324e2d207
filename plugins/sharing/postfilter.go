package sharing

import (
	"context"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
)

const msgRetryAllNodes = "the best nodes for the GPU share were refused by other conditions; trying all nodes"

// PostFilter runs when other plugins refused every candidate node of a pod. It queues the pod again, to be filtered on all nodes. It must
// run before preemption, which would otherwise evict pods although a node that was not a candidate may have space.
func (p *Plugin) PostFilter(ctx context.Context, state fwk.CycleState, pod *v1.Pod, _ fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	c, status := p.cycleOf(state)
	if status != nil || !c.narrowed {
		return nil, fwk.NewStatus(fwk.Unschedulable)
	}
	p.wide.add(pod.UID)
	if !p.isCached(pod) {
		p.wide.remove(pod.UID)
	}
	countCycle(p.name, wideRetry)
	p.handle.Activate(klog.FromContext(ctx), map[string]*v1.Pod{klog.KObj(pod).String(): pod})
	return nil, fwk.NewStatus(fwk.UnschedulableAndUnresolvable, msgRetryAllNodes) // ends the PostFilter plugins
}
