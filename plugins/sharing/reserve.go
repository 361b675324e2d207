package sharing

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/gshare-dev/gshare/plugins/ledger"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// Reserve chooses the slices for the pod and records the placement as assumed. It may run several times for one pod: the simulation of a
// group reserves and unreserves, and the commit reserves again with the same state.
func (p *Plugin) Reserve(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	c, status := p.cycleOf(state)
	if status != nil || !c.hasShare {
		return status
	}
	info, err := p.handle.SnapshotSharedLister().NodeInfos().Get(nodeName)
	if err != nil {
		return fwk.AsStatus(err)
	}
	node, plan, err := p.planPod(state, c, pod, info)
	if err != nil {
		return nodeChangedStatus(state, err.Error())
	}
	placement := placementOf(pod.UID, node, p.rules.Model, c.pod, plan)
	p.ledger.Reserve(ledger.Assumed{
		Placement: placement, Tenant: pod.Namespace, Name: pod.Name, Workload: c.pod.Request.Workload,
	}, c.attempt)
	p.breadths.remove(pod.UID)
	klog.FromContext(ctx).V(4).Info("Reserved slices", "pod", klog.KObj(pod), "node", nodeName, "placement", placement)
	return nil
}

// planPod returns the node without the pod itself, and the slices of the node that the pod is to get. Except in group simulations it counts
// all assumed placements on the node, including those of pods that the snapshot does not show yet.
func (p *Plugin) planPod(state fwk.CycleState, c *cycle, pod *v1.Pod, info fwk.NodeInfo) (*packing.Node, packing.Plan, error) {
	var assumed []ledger.Assumed
	if !state.IsPodGroupSchedulingCycle() {
		assumed = p.liveAssumed(info.Node().Name)
	}
	node, err := p.deriveNode(info, pod.UID, assumed)
	if err != nil {
		return nil, nil, err
	}
	if plan, ok := p.planBesideNominees(c, pod, info, node, assumed); ok {
		return node, plan, nil
	}
	plan, _, refusal := p.fleet.packer.Place(node, c.pod)
	if refusal != packing.Admitted {
		return nil, nil, errors.New(refusal.String())
	}
	return node, plan, nil
}

// planBesideNominees returns a plan that leaves the space for which others were evicted to the pods nominated for it, if their priority is
// at least the pod's. It returns false if there are no such pods, or if every such plan needs space that terminating pods still hold.
func (p *Plugin) planBesideNominees(c *cycle, pod *v1.Pod, info fwk.NodeInfo, node *packing.Node, assumed []ledger.Assumed) (packing.Plan, bool) {
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
	later, err := p.deriveNode(crowded, pod.UID, assumed)
	if err != nil {
		return nil, false
	}
	plan, _, refusal := p.fleet.packer.Place(later, c.pod)
	return plan, refusal == packing.Admitted && p.fleet.packer.Admits(node, c.pod, plan)
}

// liveAssumed returns the assumed placements on a node, without those of pods that the informer no longer has: the deletion of such a pod
// may have woken the current pod before the ledger was updated.
func (p *Plugin) liveAssumed(nodeName string) []ledger.Assumed {
	return slices.DeleteFunc(p.ledger.OnNode(nodeName), func(q ledger.Assumed) bool {
		return !p.isCachedUID(q.Tenant, q.Name, q.UID)
	})
}

// nodeChangedStatus returns the status for a node that Filter admitted and Reserve refuses because of an assumed placement that the snapshot does
// not show. There may be no later event that wakes the pod, so the status is an error, which puts the pod into the backoff queue.
func nodeChangedStatus(state fwk.CycleState, reason string) *fwk.Status {
	if state.IsPodGroupSchedulingCycle() {
		return fwk.NewStatus(fwk.Unschedulable, reason)
	}
	return fwk.NewStatus(fwk.Error, "node changed since it was filtered: "+reason)
}

// Unreserve removes the placement that this scheduling attempt assumed. It is called even if Reserve never ran, and also after a failed
// Bind, which returns only when it is certain that the pod was not bound.
func (p *Plugin) Unreserve(_ context.Context, state fwk.CycleState, pod *v1.Pod, _ string) {
	if c, status := p.cycleOf(state); status == nil {
		p.ledger.Unreserve(pod.UID, c.attempt)
	}
}

// placementOf converts the packer's plan for a pod (which slice of the node each vGPU gets) into the placement that is written as an annotation.
func placementOf(uid types.UID, node *packing.Node, m packing.Model, pod *packing.Pod, plan packing.Plan) kube.Placement {
	out := kube.Placement{
		Node: node.Name, UID: uid, Model: kube.FitModel(m), Weights: pod.Request.Weights,
		AntiAffinity: pod.Request.AntiAffinity,
	}
	for c, picks := range plan {
		container := pod.Request.Containers[c]
		placed := kube.PlacedContainer{Name: container.Name}
		for _, pick := range picks {
			placed.VGPUs = append(placed.VGPUs, kube.PlacedVGPU{
				Slice: string(node.Slices[pick.Slice].ID), Class: pick.Class,
				Priority: pod.Request.Priority, Share: container.Share,
			})
		}
		out.Containers = append(out.Containers, placed)
	}
	return out
}

// bindBackoff is the backoff between attempts to bind a pod when it is uncertain whether it is bound: 50 ms at first, then up to 5 s,
// without a limit on attempts.
var bindBackoff = wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 8, Cap: 5 * time.Second}

// maxRequestTime is how long the API server may still carry out a bind request after its response was lost. By default the API server ends
// requests after a minute.
const maxRequestTime = 90 * time.Second

// Bind writes the pod's node and placement to the API server in one Binding. It skips pods without a share.
func (p *Plugin) Bind(ctx context.Context, state fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	c, status := p.cycleOf(state)
	if status != nil {
		return status
	}
	if !c.hasShare {
		return fwk.NewStatus(fwk.Skip)
	}
	assumed, ok := p.ledger.Get(pod.UID)
	if !ok || assumed.Node != nodeName {
		return fwk.NewStatus(fwk.Error, fmt.Sprintf("no placement reserved for %s on %s", klog.KObj(pod), nodeName))
	}
	binding, err := kube.MakeBinding(pod, nodeName, assumed.Placement)
	if err != nil {
		return fwk.AsStatus(err)
	}
	if err := p.bindUntilConfirmed(ctx, pod, binding); err != nil {
		binds.WithLabelValues(p.name, notBound).Inc()
		return fwk.AsStatus(fmt.Errorf("bind %s to %s: %w", klog.KObj(pod), nodeName, err))
	}
	binds.WithLabelValues(p.name, wasBound).Inc()
	return nil
}

// bindUntilConfirmed binds the pod and retries until the outcome is certain. It returns nil when the pod is bound exactly as in the
// binding, and an error only if that is not so and never will be. After a timeout or a server error, the API server may have carried out
// the request or may still do so. If the space were freed then, it could be assigned twice; so the assumed placement holds it meanwhile.
func (p *Plugin) bindUntilConfirmed(ctx context.Context, pod *v1.Pod, b *v1.Binding) error {
	backoff := bindBackoff
	var unanswered time.Time // time of the last attempt that may still be carried out
	for {
		err := p.handle.ClientSet().CoreV1().Pods(b.Namespace).Bind(ctx, b, metav1.CreateOptions{})
		if err == nil {
			return nil
		}
		if !isRejected(err) {
			unanswered = time.Now()
		}
		bound, certain := p.bindOutcome(ctx, pod, b, time.Since(unanswered) > maxRequestTime)
		if bound {
			return nil
		}
		if certain {
			return err
		}
		binds.WithLabelValues(p.name, ambiguous).Inc()
		klog.FromContext(ctx).V(2).Info("Bind is ambiguous, trying again", "pod", klog.KObj(pod), "node", b.Target.Name, "err", err)
		if waitErr := sleep(ctx, backoff.Step()); waitErr != nil {
			return errors.Join(err, waitErr)
		}
	}
}

// bindOutcome reads the pod from the API server after a failed bind. It returns whether the pod is bound exactly as in the binding, and
// whether that is certain. It is certain that a pod is not bound only if no bind request can still be in flight.
func (p *Plugin) bindOutcome(ctx context.Context, pod *v1.Pod, b *v1.Binding, nothingUnderWay bool) (bound, certain bool) {
	live, err := p.handle.ClientSet().CoreV1().Pods(b.Namespace).Get(ctx, b.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, true
	case err != nil:
		return false, false
	case live.UID != pod.UID:
		return false, true // another pod of that name; a late request for this one fails on the UID
	case live.Spec.NodeName != "":
		return kube.BoundAs(live, b), true
	}
	return false, nothingUnderWay
}

// isRejected reports whether the error is a rejection by the API server, after which the request is not carried out later: a 4xx status
// other than request timeout and too many requests.
func isRejected(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout && code != http.StatusTooManyRequests
}

// sleep waits for the duration, or returns the context's error if the context ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
