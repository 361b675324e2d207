package controller

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// triedCuts are the cuts that the pods of a replica have had since one was placed, or for a while.
type triedCuts struct {
	tried   map[string]bool // by cut.key
	present string          // that of the pod
	since   time.Time
	given   int // pods that were given up
	// last is the pod for which no other cut was left when it was looked for last. Unlike the others, the lock of Pods guards it.
	last types.UID
}

// triedAgain is the time after which a cut that had no room is tried again.
const triedAgain = time.Minute

// add notes the cut of the pod.
func (t *triedCuts) add(key string) {
	if t.tried == nil {
		t.tried, t.since = map[string]bool{}, time.Now()
	}
	t.present = key
	t.tried[key] = true
}

// forget lets all but the present cut be tried again, after a while.
func (t *triedCuts) forget() {
	if time.Since(t.since) >= triedAgain {
		t.tried, t.since = map[string]bool{t.present: true}, time.Now()
	}
}

// pause is how long a pod has to be without room before it is given up: it doubles with each, up to a minute. A pod may have no room for another
// reason than its instances, which no cut changes.
func (t *triedCuts) pause() time.Duration { return min(roomPause<<min(t.given, 10), triedAgain) }

// recut gives up the pod of a replica with a pipeline for which the scheduler has found no node for a while, so that it is created again with the next
// cut, if there is one. It reports whether the pod is not to be looked at any further.
func recut(ctx context.Context, p *Pods, i *podInstance, pod *v1.Pod) (bool, error) {
	why := unschedulable(pod)
	if i.Function.Spec.Pipeline == nil || i.Move.From != 0 || why == nil || pod.Status.NominatedNodeName != "" { // others make room for it
		return false, nil
	}
	waits := time.Since(why.LastTransitionTime.Time)
	if waits < roomPause {
		p.queue.AddAfter(i.Name, roomPause-waits)
		return false, nil
	}
	i.cuts.add(cutKeyOf(pod)) // an earlier leader may have created it
	i.cuts.forget()
	next, err := cutter{p.client, p.onNodes}.cut(ctx, i.Function, i.cuts.tried)
	if err != nil {
		p.log.Warn("failed to look for another cut", "replica", i.Name, "error", err) // what else is to be done for the pod does not depend on it
	}
	setLastCut(p, i, pod, next == nil)
	if next == nil {
		p.queue.AddAfter(i.Name, roomAgain)
		return false, nil
	}
	if left := i.cuts.pause() - waits; left > 0 {
		p.queue.AddAfter(i.Name, min(left, roomAgain))
		return false, nil
	}
	// It may have been bound since: then it is another version.
	err = p.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID, ResourceVersion: &pod.ResourceVersion})
	if apierrors.IsConflict(err) {
		p.queue.AddAfter(i.Name, time.Second)
		return true, nil
	}
	if client.IgnoreNotFound(err) != nil {
		return false, err
	}
	p.log.Info("gave up a cut that has no room", "replica", i.Name, "next", next.text())
	i.cuts.given++
	p.mu.Lock()
	i.pod, i.uid = client.ObjectKey{}, ""
	p.mu.Unlock()
	p.queue.Add(i.Name)
	return true, nil
}

// setLastCut notes whether no other cut is left for the pod of a replica.
func setLastCut(p *Pods, i *podInstance, pod *v1.Pod, last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i.cuts.last = ""
	if last {
		i.cuts.last = pod.UID
	}
}

// mayRecut reports whether the pod of an instance without room may soon be replaced by one that is cut in another way, or is one that takes the place of another,
// for which there is no last cut. Nothing is to be given up for it.
func mayRecut(p *Pods, name string, pod *v1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.instances[name]
	return i != nil && i.Function.Spec.Pipeline != nil && i.cuts.last != pod.UID
}
