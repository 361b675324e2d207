package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/node/grant"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// loweredPods holds the pods of the node that have given up SM-time or memory. The node advertises what they gave up in addition
// (kube.NodeResources). What it advertises may shrink again to what all pods request.
type loweredPods struct {
	pods     atomic.Pointer[[]*v1.Pod]
	requests atomic.Pointer[v1.ResourceList]
}

// requested returns how much all pods of the node request of the resources that may shrink. It is empty before the pods are known.
func (l *loweredPods) requested() v1.ResourceList {
	if requests := l.requests.Load(); requests != nil {
		return *requests
	}
	return v1.ResourceList{}
}

func (l *loweredPods) get() []*v1.Pod {
	if pods := l.pods.Load(); pods != nil {
		return *pods
	}
	return nil
}

// set replaces the pods by those in a list of all pods of the node, and reports whether they have changed. Only one goroutine may call it.
func (l *loweredPods) set(all []*v1.Pod) (changed bool) {
	var lowered []*v1.Pod
	for _, pod := range all {
		if !kube.Ended(pod) && (kube.LevelOf(pod) < residency.Hot || kube.TakesTurns(pod)) {
			lowered = append(lowered, pod)
		}
	}
	slices.SortFunc(lowered, func(a, b *v1.Pod) int { return cmp.Compare(a.UID, b.UID) }) // the kubelet lists pods in any order
	same := slices.EqualFunc(l.get(), lowered, func(a, b *v1.Pod) bool {
		return a.UID == b.UID && kube.LevelOf(a) == kube.LevelOf(b) && kube.KeptOf(a) == kube.KeptOf(b)
	})
	requests := v1.ResourceList{kube.ResourceSMTime: kube.RequestedResource(kube.ResourceSMTime, all)}
	if slices.ContainsFunc(all, func(p *v1.Pod) bool { return p.Annotations[kube.AnnotationResidency] != "" || kube.TakesTurns(p) }) { // one may have been parked
		requests[kube.ResourceMemory] = kube.RequestedResource(kube.ResourceMemory, all)
	}
	l.requests.Store(&requests)
	l.pods.Store(&lowered)
	return !same
}

// residencyKeeper executes the rules of package residency on the node: it gives running instances of functions the level that
// gshare-controller wants, as far as there is room, and reports it.
type residencyKeeper struct {
	*granter
	listed chan []*v1.Pod   // the latest list of the node's pods, with room for one
	moves  map[string]*move // by grant ID: servers that are being parked or woken
	host   hostAccount
	logged map[types.UID]string // the latest log entry about each listed pod on which it cannot act
	// refused is the latest report on each listed pod that the API server has refused to write.
	refused map[types.UID]refusedReport
}

// refusedReport is a report on a pod that the API server has refused as the pod is: the kubelet may see a change of it later, or its annotations are
// full, as whoever may change the pod can have them.
type refusedReport struct {
	report string // and the annotations that it was about
	pause  time.Duration
	until  time.Time
}

// The pauses before a refused report is tried again, the first and the longest. A change of the pod ends them.
const firstReportPause, longestReportPause = instancePeriod, time.Minute

func newResidencyKeeper(g *granter) *residencyKeeper {
	return &residencyKeeper{
		granter: g, listed: make(chan []*v1.Pod, 1), moves: map[string]*move{}, logged: map[types.UID]string{}, refused: map[types.UID]refusedReport{},
	}
}

// observe passes the present pods of the node to the loop. It never blocks; only one goroutine may call it.
func (k *residencyKeeper) observe(pods []*v1.Pod) {
	select {
	case <-k.listed:
	default:
	}
	k.listed <- pods
}

// loop acts on each list of pods until the context ends.
func (k *residencyKeeper) loop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case pods := <-k.listed:
			k.settle(ctx, pods)
		}
	}
}

// settle takes the steps that package residency wants for each instance, until none is left.
func (k *residencyKeeper) settle(ctx context.Context, pods []*v1.Pod) {
	var waiting []grant.Grant
	for _, pod := range pods {
		if !kube.Ended(pod) && pod.DeletionTimestamp == nil {
			waiting = append(waiting, grant.Placed(pod, k.Config.Kubernetes.NodeName)...)
		}
	}
	for _, pod := range pods {
		granted := slices.DeleteFunc(k.grants.all(), func(g grant.Grant) bool { return g.UID != pod.UID })
		wanted, reached, err := kube.ResidencyOf(pod)
		switch {
		case err != nil:
			k.logOnce(pod, "residency annotation is malformed", err.Error())
		case wanted == residency.Fixed || len(granted) == 0:
		case len(granted) > 1:
			k.logOnce(pod, "residency of a pod with several shares cannot change", "")
		default:
			k.advance(ctx, granted[0].ID(), pod, wanted, reached, waiting)
		}
	}
	gone := func(uid types.UID) bool {
		return !slices.ContainsFunc(pods, func(p *v1.Pod) bool { return p.UID == uid })
	}
	maps.DeleteFunc(k.logged, func(uid types.UID, _ string) bool { return gone(uid) })
	maps.DeleteFunc(k.refused, func(uid types.UID, _ refusedReport) bool { return gone(uid) })
	k.forgetMoves()
	k.applyTrialQuotas(pods)
	if k.lowered.set(pods) {
		k.publish()
	}
}

// logOnce logs an event of a pod unless it is the same as the last one logged for the pod. It reports whether it logged.
func (k *residencyKeeper) logOnce(pod *v1.Pod, event, why string) bool {
	text := event + why
	if k.logged[pod.UID] == text {
		return false
	}
	k.logged[pod.UID] = text
	k.Log.Warn(event, "pod", pod.Namespace+"/"+pod.Name, "error", why)
	return true
}

// advance takes the steps of one instance until none is left or one fails; the next list of pods repeats that one.
func (k *residencyKeeper) advance(ctx context.Context, id string, pod *v1.Pod, w residency.Wanted, r residency.Reached, waiting []grant.Grant) {
	defer k.operations.lock(id)()
	for {
		granted, step, ok := k.grants.nextStep(id, w, r, waiting)
		if !ok {
			return
		}
		switch step.Effect {
		case residency.Idle:
			return
		case residency.Report:
			k.report(ctx, pod, step.Record)
			return
		case residency.Enforce:
			ok = k.enforce(ctx, pod, &granted, w.Seq, step.Level)
		case residency.Save:
			ok = k.save(granted, step.Record)
		}
		if !ok {
			return
		}
	}
}

// enforce makes the token server serve a container at a level, and parks or wakes the server in the container. A container that has its
// slice alone stays as it is. What the token server refuses is tried again with each list of pods; the pod gets one event about it.
func (k *residencyKeeper) enforce(ctx context.Context, pod *v1.Pod, granted *grant.Grant, seq int64, level residency.Level) (done bool) {
	id := granted.ID()
	running, served := k.grants.serviceOf(id)
	if !served && granted.Class() != share.Exclusive {
		return false // once its MIG instance is known, it will be served at the level of its record
	}
	if served {
		if err := running.container.Reshape(level < residency.Hot); err != nil {
			if k.logOnce(pod, "the residency is not enforced", fmt.Sprintf("container %s, level %v: %v", granted.Container, level, err)) {
				k.Cluster.Warn(podOf(*granted), eventResidencyNotEnforced, fmt.Sprintf("container %s cannot become %v, and this is tried again: %v",
					granted.Container, level, err))
			}
			return false
		}
	}
	parked, _ := k.grants.parkingOf(id)
	if level == residency.Warm && granted.Level() > residency.Warm {
		var ok bool
		if parked, ok = k.park(ctx, pod, granted, seq); !ok {
			return false
		}
	} else if level > residency.Warm && !k.wake(ctx, pod, granted) {
		return false
	}
	delete(k.logged, pod.UID)
	k.grants.setEnforced(id, level, parked)
	killPoint("enforced")
	k.Log.Info("changed residency", "container", granted.String(), "level", level)
	k.publish()
	return true
}

// save records an answer on disk and then in the book. nextStep has already put a raise into the book.
func (k *residencyKeeper) save(granted grant.Grant, record residency.Reached) (done bool) {
	before, level := granted.Residency, granted.Level()
	granted.Residency = record
	if err := k.writeRecord(&granted); err != nil {
		k.Log.Error("failed to record residency", "container", granted.String(), "error", err)
		k.grants.setResidency(granted.ID(), before)
		return false
	}
	killPoint("residency")
	k.grants.setResidency(granted.ID(), record)
	k.Log.Info("recorded residency", "container", granted.String(), "level", record.Level, "seq", record.Seq, "refused", record.Refused)
	switch {
	case record.Refused:
		if parked, _ := k.grants.parkingOf(granted.ID()); parked.failed == record.Seq {
			break // the event about that says why
		}
		k.Cluster.Warn(podOf(granted), eventResidencyRefused, "the slice has no room for the SM-time or the memory of container "+granted.Container+
			", which stays "+record.Level.String())
	case record.Level < level:
		k.grants.notifyFreed()
	}
	return true
}

// report writes the level that a pod has reached. If the API server does not accept it, a later list of pods repeats it: the kubelet may
// see a pod's new version late.
func (k *residencyKeeper) report(ctx context.Context, pod *v1.Pod, record residency.Reached) {
	text, err := record.Encode()
	about := text + "\n" + pod.Annotations[kube.AnnotationResidency] + "\n" + pod.Annotations[kube.AnnotationResidencyReached]
	refused := k.refused[pod.UID]
	if refused.report != about {
		refused = refusedReport{report: about}
	} else if time.Now().Before(refused.until) {
		return
	}
	if err == nil {
		err = k.Cluster.WriteResidency(ctx, pod, text)
	}
	if apierrors.IsInvalid(err) {
		refused.pause = min(max(2*refused.pause, firstReportPause), longestReportPause)
		refused.until = time.Now().Add(refused.pause)
		k.refused[pod.UID] = refused
		return
	}
	delete(k.refused, pod.UID)
	if err == nil {
		k.Log.Info("reported residency", "pod", pod.Namespace+"/"+pod.Name, "level", record.Level, "seq", record.Seq, "refused", record.Refused)
		return
	}
	k.Log.Warn("failed to report residency", "pod", pod.Namespace+"/"+pod.Name, "error", err)
}
