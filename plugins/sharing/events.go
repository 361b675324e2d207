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

// EventsToRegister lists what can make room for a pod that this plugin refused. Where a hint is unsure it queues: a pod
// woken for nothing costs one cycle, a pod not woken waits for minutes.
func (p *Plugin) EventsToRegister(context.Context) ([]fwk.ClusterEventWithHint, error) {
	return []fwk.ClusterEventWithHint{
		// A pod that held a share is gone or has ended.
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Delete}, QueueingHintFn: p.podGone},
		// A placement that could not be read was mended, or spoilt.
		{Event: fwk.ClusterEvent{Resource: fwk.AssignedPod, ActionType: fwk.Update}, QueueingHintFn: p.placementChanged},
		// A node came, or its inventory changed: more slices, or healthy ones again.
		{Event: fwk.ClusterEvent{Resource: fwk.Node, ActionType: fwk.Add | fwk.UpdateNodeAnnotation}, QueueingHintFn: p.inventoryChanged},
		// The pod itself was corrected: its annotations, for one.
		{Event: fwk.ClusterEvent{Resource: fwk.TargetPod, ActionType: fwk.Update}},
	}, nil
}

// podGone queues when the pod that went may have held a share; pods without one never stood in this plugin's way.
func (p *Plugin) podGone(_ klog.Logger, _ *v1.Pod, oldObj, _ any) (fwk.QueueingHint, error) {
	if gone, ok := oldObj.(*v1.Pod); ok && !kube.Asks(gone) {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

func (p *Plugin) placementChanged(_ klog.Logger, _ *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, wasPod := oldObj.(*v1.Pod)
	after, isPod := newObj.(*v1.Pod)
	if wasPod && isPod && before.Annotations[kube.AnnotationPlacement] == after.Annotations[kube.AnnotationPlacement] {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

func (p *Plugin) inventoryChanged(_ klog.Logger, _ *v1.Pod, oldObj, newObj any) (fwk.QueueingHint, error) {
	before, isUpdate := oldObj.(*v1.Node)
	after, ok := newObj.(*v1.Node)
	if ok && isUpdate && before != nil && before.Annotations[kube.AnnotationInventory] == after.Annotations[kube.AnnotationInventory] {
		return fwk.QueueSkip, nil
	}
	return fwk.Queue, nil
}

// complaints has the last inventory, as a digest, that each node was told about.
type complaints struct{ byNode sync.Map }

// complain tells the node, once for each inventory, what is wrong with it.
func (p *Plugin) complain(node *v1.Node, err error) {
	now := sha256.Sum256([]byte(string(node.UID) + "/" + node.Annotations[kube.AnnotationInventory]))
	if before, told := p.complaints.byNode.Swap(node.Name, now); !told || before != now {
		p.handle.EventRecorder().Eventf(node, nil, v1.EventTypeWarning, "MalformedInventory", "Scheduling",
			"no gshare pod is placed here: %v", err)
	}
}

// forgetComplaints drops the nodes that are gone.
func (p *Plugin) forgetComplaints() {
	p.complaints.byNode.Range(func(name, _ any) bool {
		if _, here := p.fleet.index[name.(string)]; !here {
			p.complaints.byNode.Delete(name)
		}
		return true
	})
}
