package controller

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// triedCuts are the cuts that the pods of a replica have had since one was placed, or since they were last forgotten.
type triedCuts struct {
	tried   map[string]bool // by cut.key
	present string          // key of the present pod's cut
	since   time.Time
	given   int // number of pods that were given up
	// last is the pod for which no other cut was left in the last search. Unlike the other fields, it is guarded by the lock of Pods.
	last types.UID
}

// triedAgain is the time after which a cut that had no room is tried again.
const triedAgain = time.Minute

// add records the cut of the present pod.
func (t *triedCuts) add(key string) {
	if t.tried == nil {
		t.tried, t.since = map[string]bool{}, time.Now()
	}
	t.present = key
	t.tried[key] = true
}

// forget allows all but the present cut to be tried again once triedAgain has passed.
func (t *triedCuts) forget() {
	if time.Since(t.since) >= triedAgain {
		t.tried, t.since = map[string]bool{t.present: true}, time.Now()
	}
}

// pause is how long a pod has to be without room before it is given up. It doubles with each pod that was given up, up to triedAgain: there may be no
// room for the pod for a reason that no cut changes.
func (t *triedCuts) pause() time.Duration { return min(roomPause<<min(t.given, 10), triedAgain) }

// recut gives up the pod of a replica with a pipeline if the scheduler has found no node for it for a while, so that it is created again with the
// next cut, if there is one. It reports whether reconciliation of the pod is to end here.
func recut(ctx context.Context, p *Pods, i *podInstance, pod *v1.Pod) (bool, error) {
	why := unschedulable(pod)
	if i.Function.Spec.Pipeline == nil || i.Move.From != 0 || why == nil || pod.Status.NominatedNodeName != "" { // or others make room for it
		return false, nil
	}
	waits := time.Since(why.LastTransitionTime.Time)
	if waits < roomPause {
		p.queue.AddAfter(i.Name, roomPause-waits)
		return false, nil
	}
	i.cuts.add(cutKeyOf(pod)) // not known yet if an earlier leader created it
	i.cuts.forget()
	next, err := cutter{p.client, p.onNodes}.cut(ctx, i.Function, i.cuts.tried)
	if err != nil {
		p.log.Warn("failed to look for another cut", "replica", i.Name, "error", err) // goes on: the rest of the reconciliation does not depend on this
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
	// If the pod has been bound in the meantime, its resource version differs, and it is not deleted.
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

// setLastCut records whether no other cut is left for the pod of a replica.
func setLastCut(p *Pods, i *podInstance, pod *v1.Pod, last bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i.cuts.last = ""
	if last {
		i.cuts.last = pod.UID
	}
}

// mayRecut reports whether no room is to be made for the pod of an instance because it may soon be replaced by one with another cut. That is also so
// for a pod that is to replace another one, for which there is never a last cut.
func mayRecut(p *Pods, name string, pod *v1.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.instances[name]
	return i != nil && i.Function.Spec.Pipeline != nil && i.cuts.last != pod.UID
}
