package sharing

import (
	"context"
	"crypto/sha256"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/vgpu/kube"
)

// EventsToRegister returns the cluster events that can make a refused pod schedulable. A queueing hint that is in doubt queues the pod: a
// needless retry costs one cycle, but a missed one costs minutes of waiting.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		// A pod that held a share is gone or has ended.
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}, QueueingHintFn: p.hintPodDeleted},
		// A malformed placement was fixed, a valid one changed, or an instance of a function gave up SM-time.
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Update}, QueueingHintFn: p.hintPodUpdated},
		// A node was added, or its inventory changed: more slices, or slices that are healthy again.
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAnnotation}, QueueingHintFn: p.hintInventoryChanged},
		// The pod itself was corrected, for example in its annotations.
		{Event: fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.Update}},
	}, nil
}

// hintPodDeleted is the queueing hint for a deleted pod: it queues the waiting pod if the deleted one may have held a share.
func (p *Plugin) hintPodDeleted(_ klog.Logger, _ *v1.Pod, oldObj, _ any) (fwk.QueueingHint, error) {
	if gone, ok := oldObj.(*v1.Pod); ok && !kube.RequestsShare(gone) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// hintPodUpdated is the queueing hint for an updated pod: it queues the waiting pod if the placement annotation of the updated one changed,
// or if the updated one counts at a lower level than before.
func (p *Plugin) hintPodUpdated(_ klog.Logger, _ *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, wasPod := oldObj.(*v1.Pod)
	after, isPod := newObj.(*v1.Pod)
	if wasPod && isPod && before.Annotations[kube.AnnotationPlacement] == after.Annotations[kube.AnnotationPlacement] && !isLowered(before, after) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// isLowered reports whether a pod counts at a lower level after an update. It decodes only pods whose residency changed, because it is
// called for each waiting pod at each update of a pod.
func isLowered(before, after *v1.Pod) bool {
	equal := func(key string) bool { return before.Annotations[key] == after.Annotations[key] }
	if equal(kube.AnnotationResidency) && equal(kube.AnnotationResidencyReached) {
		return false
	}
	return kube.LevelOf(after) < kube.LevelOf(before)
}

// hintInventoryChanged is the queueing hint for nodes: it queues the waiting pod if a node is new or its inventory annotation changed.
func (p *Plugin) hintInventoryChanged(_ klog.Logger, _ *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, isUpdate := oldObj.(*v1.Node)
	after, ok := newObj.(*v1.Node)
	if ok && isUpdate && before != nil && before.Annotations[kube.AnnotationInventory] == after.Annotations[kube.AnnotationInventory] {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// reportedErrors holds, for each node, a digest of the last faulty inventory that an event has reported.
type reportedErrors struct{ byNode sync.Map }

// reportInventory records a Warning event on the node about the error of its inventory, once for each version of the inventory.
func (p *Plugin) reportInventory(node *v1.Node, err error) {
	now := sha256.Sum256([]byte(string(node.UID) + "/" + node.Annotations[kube.AnnotationInventory]))
	if before, told := p.reportedErrors.byNode.Swap(node.Name, now); !told || before != now {
		p.handle.EventRecorder().Eventf(node, nil, v1.EventTypeWarning, eventMalformed, "Scheduling",
			"profile %s places no pod here: %v", p.handle.ProfileName(), err)
	}
}

// pruneReported forgets the reported errors of nodes that no longer exist.
func (p *Plugin) pruneReported() {
	p.reportedErrors.byNode.Range(func(name, _ any) bool {
		if _, here := p.fleet.index[name.(string)]; !here {
			p.reportedErrors.byNode.Delete(name)
		}
		return true
	})
}
