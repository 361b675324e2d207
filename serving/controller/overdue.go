package controller

import (
	"cmp"
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
)

// Times for which a pod of a function that has a node may take to become Ready, in addition to what its container's startupProbe allows. They are
// long because images of servers are large and the kubelet retries what has failed.
const (
	startLimit = 10 * time.Minute // since its container started
	nodeLimit  = time.Hour        // since the pod got its node
)

// OverdueAt returns when to give up a pod that is not Ready, and the limit that it exceeds then. It is zero for a pod without a node, since there may
// be room for it later.
func OverdueAt(p *v1.Pod) (at time.Time, limit time.Duration) {
	var bound, unready time.Time
	for _, c := range p.Status.Conditions {
		switch {
		case c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue:
			bound = c.LastTransitionTime.Time
		case c.Type == v1.PodReady:
			unready = c.LastTransitionTime.Time
		}
	}
	if bound.IsZero() || p.Spec.NodeName == "" || len(p.Spec.Containers) == 0 {
		return time.Time{}, 0
	}
	server := &p.Spec.Containers[0]
	allowed := allowedStart(server)
	at, limit = latest(bound, unready).Add(nodeLimit+allowed), nodeLimit+allowed
	for _, c := range p.Status.ContainerStatuses {
		if c.Name != server.Name || c.State.Running == nil {
			continue
		}
		if started := latest(c.State.Running.StartedAt.Time, unready).Add(startLimit + allowed); started.Before(at) {
			at, limit = started, startLimit+allowed
		}
	}
	return at, limit
}

// allowedStart returns how long the startupProbe of a container lets it take to start, 0 if it has none.
func allowedStart(c *v1.Container) time.Duration {
	if c.StartupProbe == nil {
		return 0
	}
	return time.Duration(c.StartupProbe.InitialDelaySeconds)*time.Second + api.StartLimit(c.StartupProbe)
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// endOverdue ends the pod of an instance that has not become Ready in time, so that the fleet tries again elsewhere, after a pause. If there is time
// left, it has the pod looked at again when that is over.
func endOverdue(ctx context.Context, p *Pods, i *podInstance, pod *v1.Pod) (ended bool, err error) {
	at, limit := OverdueAt(pod)
	if w, _, _ := kube.ResidencyOf(pod); at.IsZero() || w.Level == residency.Warm { // a parked pod need not be Ready
		return false, nil
	}
	if woken := i.parked.Add(startLimit); woken.After(at) {
		at, limit = woken, startLimit
	}
	if left := time.Until(at); left > 0 {
		p.queue.AddAfter(i.Name, left)
		return false, nil
	}
	if err := p.delete(ctx, pod); err != nil {
		return false, err
	}
	why := fmt.Sprintf("was not ready within %v: %s", limit, cmp.Or(api.Failure(pod), waitsFor(pod)))
	p.recorder.Eventf(i.Function, pod, v1.EventTypeWarning, eventNotReadyInTime, "Delete", "%s", shortened(fmt.Sprintf("Pod %s %s", pod.Name, why), maxNote))
	return true, p.end(ctx, i, fleet.Failed, why)
}
