package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// stepPause is the time after which a FaSTPod is looked at again after a pod was created or deleted for it: the cache usually shows the change by then.
const stepPause = 50 * time.Millisecond

// endedPause is the least time from the creation of a pod that ends until it is replaced. Otherwise a pod that ends at once, for instance because its
// node refuses it, would be created again and again without pause.
const endedPause = 10 * time.Second

// fastPods keeps as many pods of each FaSTPod as its replicas field says. For FaSTPods of functions it only counts the pods, which belong to the
// fleet. It implements reconcile.Reconciler.
type fastPods struct {
	client   client.Client
	live     client.Reader // reads from the API server
	quotas   *Quotas
	recorder events.EventRecorder
}

// Reconcile implements reconcile.Reconciler.
func (r *fastPods) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	fp := &api.FaSTPod{}
	if err := r.client.Get(ctx, request.NamespacedName, fp); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if fp.DeletionTimestamp != nil { // the garbage collector deletes its pods
		return reconcile.Result{}, nil
	}
	pods, err := r.podsOf(ctx, fp)
	if err != nil {
		return reconcile.Result{}, err
	}
	if fp.Spec.FunctionRef != nil {
		return reconcile.Result{}, r.count(ctx, fp, pods)
	}
	step, victim, again := nextStep(fp, pods, time.Now())
	switch step {
	case createPod:
		err = r.create(ctx, fp, pods)
	case deletePod:
		if pause := endedPause - time.Since(victim.CreationTimestamp.Time); kube.Ended(victim) && pause > 0 {
			return reconcile.Result{RequeueAfter: min(pause, endedPause)}, r.writeStatus(ctx, fp, pods, "")
		}
		err = client.IgnoreNotFound(r.client.Delete(ctx, victim, client.Preconditions{UID: &victim.UID}))
	}
	if why := OverQuota(err); why != "" {
		return reconcile.Result{RequeueAfter: quotaPause}, r.writeStatus(ctx, fp, pods, why)
	}
	if apierrors.IsAlreadyExists(err) || err == nil && step != keepPods { // one step at a time, since the cache may lag
		return reconcile.Result{RequeueAfter: stepPause}, nil
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: again}, r.writeStatus(ctx, fp, pods, "")
}

// podsOf returns the pods that a FaSTPod controls.
func (r *fastPods) podsOf(ctx context.Context, fp *api.FaSTPod) ([]*v1.Pod, error) {
	list := &v1.PodList{}
	if err := r.client.List(ctx, list, client.InNamespace(fp.Namespace), client.MatchingFields{byFaSTPod: fp.Name}); err != nil {
		return nil, err
	}
	var pods []*v1.Pod
	for at := range list.Items {
		if p := &list.Items[at]; metav1.IsControlledBy(p, fp) {
			pods = append(pods, p)
		}
	}
	return pods, nil
}

// count writes how many pods the FaSTPod of a function has. It deletes a FaSTPod that has no pods left if its function uses a later one.
func (r *fastPods) count(ctx context.Context, fp *api.FaSTPod, pods []*v1.Pod) error {
	active := int32(len(activeOf(pods)))
	if active == 0 {
		if superseded, err := isSuperseded(ctx, r.client, fp); err != nil || superseded {
			// Deletion fails safely if the FaSTPod is used again: Pods changes the object first, so that its resource version differs.
			return client.IgnoreNotFound(cmp.Or(err, r.client.Delete(ctx, fp, client.Preconditions{UID: &fp.UID, ResourceVersion: &fp.ResourceVersion})))
		}
	}
	if active != *fp.Spec.Replicas {
		changed := &api.FaSTPod{ObjectMeta: metav1.ObjectMeta{Namespace: fp.Namespace, Name: fp.Name}}
		if err := r.client.Patch(ctx, changed, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, active))); err != nil {
			return client.IgnoreNotFound(err)
		}
		fp = changed
	}
	return r.writeStatus(ctx, fp, pods, "") // a policy limits the function, not its FaSTPod
}

// step is what to do next about the pods of a FaSTPod.
type step int

const (
	keepPods step = iota
	createPod
	deletePod
)

// nextStep returns what to do next to get as many pods as wanted, all of the present template. Pods that have ended are deleted. While pods of an
// earlier template are being replaced, there is one pod more than wanted, so that none is missing. A pod of an earlier template that has never been
// Ready takes the place of that one more, and may never become Ready: it is deleted. So is one that has not been Ready for fleet.Recovery. One that has
// only missed a probe serves again soon, while the present template may be broken: it stays, and again is when to ask next, if nothing happens before.
func nextStep(fp *api.FaSTPod, pods []*v1.Pod, now time.Time) (next step, victim *v1.Pod, again time.Duration) {
	for _, p := range pods {
		if p.DeletionTimestamp == nil && kube.Ended(p) {
			return deletePod, p, 0
		}
	}
	active, wanted := activeOf(pods), int(*fp.Spec.Replicas)
	hash := hashOf(&fp.Spec)
	stale, ready := 0, 0
	var useless *v1.Pod
	for _, p := range active {
		isReady := isReady(p)
		if p.Labels[api.LabelTemplate] == hash {
			if isReady {
				ready++
			}
			continue
		}
		stale++
		if isReady {
			continue
		}
		if left := fleet.Recovery - now.Sub(unreadySince(p)); left <= 0 {
			useless = p
		} else if again == 0 || left < again {
			again = left
		}
	}
	if stale > 0 && wanted > 0 {
		wanted++ // one more, of the present template
	}
	switch {
	case useless != nil: // first, since a SharePolicy may allow no other pod beside it
		return deletePod, useless, 0
	case len(active) < wanted && len(active)-stale < int(*fp.Spec.Replicas):
		return createPod, nil, 0
	case len(active) > wanted || stale > 0 && ready == len(active)-stale:
		return deletePod, slices.MinFunc(active, compareVictims(hash)), 0
	}
	return keepPods, nil, again
}

// activeOf returns the pods that have not ended and are not being deleted.
func activeOf(pods []*v1.Pod) []*v1.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(p *v1.Pod) bool { return p.DeletionTimestamp != nil || kube.Ended(p) })
}

// deletionCost is the annotation by which users say which pods of a set to delete first: those with the lowest cost.
const deletionCost = "controller.kubernetes.io/pod-deletion-cost"

// compareVictims orders pods by which to delete first: those of another template, then those that are not ready, then the cheapest, then the youngest.
func compareVictims(hash string) func(a, b *v1.Pod) int {
	rank := func(holds bool) int {
		if holds {
			return 1
		}
		return 0
	}
	cost := func(p *v1.Pod) int64 {
		n, _ := strconv.ParseInt(p.Annotations[deletionCost], 10, 32) // 0 if it is not a number, as for a ReplicaSet
		return n
	}
	return func(a, b *v1.Pod) int {
		return cmp.Or(
			cmp.Compare(rank(a.Labels[api.LabelTemplate] == hash), rank(b.Labels[api.LabelTemplate] == hash)),
			cmp.Compare(rank(isReady(a)), rank(isReady(b))),
			cmp.Compare(cost(a), cost(b)),
			b.CreationTimestamp.Compare(a.CreationTimestamp.Time),
			cmp.Compare(b.Name, a.Name),
		)
	}
}

// create creates the pod with the lowest free number.
func (r *fastPods) create(ctx context.Context, fp *api.FaSTPod, pods []*v1.Pod) error {
	taken := map[string]bool{}
	for _, p := range pods {
		taken[p.Name] = true
	}
	for search := (nameSearch{number: 1}); ; {
		if taken[standaloneName(fp, search.number)] {
			search.number++
			continue
		}
		pod := standalonePod(fp, search.number)
		err := r.quotas.Create(ctx, pod)
		if apierrors.IsAlreadyExists(err) {
			existing := &v1.Pod{}
			if e := r.live.Get(ctx, client.ObjectKeyFromObject(pod), existing); e == nil {
				r.quotas.Found(existing)
				others := !metav1.IsControlledBy(existing, fp) || existing.Labels[api.LabelFaSTPod] != fp.Name // its label was removed: it is no longer in the set
				if others && search.next() {
					continue
				}
			}
			if !search.ended() {
				return err // the cache does not have it yet
			}
			err = errNamesTaken
		}
		if why := OverQuota(err); why != "" {
			if !meta.IsStatusConditionTrue(fp.Status.Conditions, api.ConditionQuotaExceeded) {
				text := shortened(fmt.Sprintf("Pod %s is not created: %s", pod.Name, why), maxNote)
				r.recorder.Eventf(fp, nil, v1.EventTypeWarning, eventQuotaExceeded, "Create", "%s", text)
			}
			return err
		}
		if err != nil {
			text := shortened(fmt.Sprintf("Pod %s cannot be created: %v", pod.Name, err), maxNote)
			r.recorder.Eventf(fp, nil, v1.EventTypeWarning, eventFailedCreate, "Create", "%s", text)
			return err
		}
		r.recorder.Eventf(fp, pod, v1.EventTypeNormal, eventCreated, "Create", "Created pod %s", pod.Name)
		return nil
	}
}

// writeStatus writes what is observed about the pods of a FaSTPod, and why a policy refuses another pod, if one does.
func (r *fastPods) writeStatus(ctx context.Context, fp *api.FaSTPod, pods []*v1.Pod, overQuota string) error {
	status := fastPodStatus(fp, pods)
	setTrue(&status.Conditions, metav1.Condition{Type: api.ConditionQuotaExceeded, Reason: reasonSharePolicy, Message: overQuota, ObservedGeneration: fp.Generation})
	if equality.Semantic.DeepEqual(fp.Status, status) {
		return nil
	}
	before := &api.FaSTPod{ObjectMeta: metav1.ObjectMeta{Namespace: fp.Namespace, Name: fp.Name}, Status: fp.Status} // all that a patch of the status needs
	changed := before.DeepCopy()
	changed.Status = status
	return client.IgnoreNotFound(r.client.Status().Patch(ctx, changed, client.MergeFrom(before)))
}

func fastPodStatus(fp *api.FaSTPod, pods []*v1.Pod) api.FaSTPodStatus {
	s := *fp.Status.DeepCopy()
	s.ObservedGeneration = fp.Generation
	s.Selector = api.LabelFaSTPod + "=" + fp.Name
	s.Replicas, s.ReadyReplicas, s.Residency = 0, 0, api.ResidencyCounts{}
	waiting := ""
	for _, p := range activeOf(pods) {
		s.Replicas++
		if isReady(p) {
			s.ReadyReplicas++
		} else if waiting == "" {
			waiting = shortened(fmt.Sprintf("pod %s: %s", p.Name, cmp.Or(api.Failure(p), api.WaitsFor(p))), maxMessage)
		}
		countResidency(&s.Residency, p)
	}
	ready := metav1.Condition{Type: api.ConditionReady, Status: metav1.ConditionTrue, Reason: "AllReady", ObservedGeneration: fp.Generation}
	if s.ReadyReplicas < *fp.Spec.Replicas {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "NotReady", waiting
	}
	meta.SetStatusCondition(&s.Conditions, ready)
	return s
}

func isReady(p *v1.Pod) bool {
	_, ready := api.Address(p)
	return ready
}

// unreadySince returns when a pod stopped being Ready. It is zero for one that is Ready or never was: the kubelet sets the condition for the first time
// when it sets the pod's start time, and from then on when it changes.
func unreadySince(p *v1.Pod) time.Time {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady && c.Status != v1.ConditionTrue && p.Status.StartTime != nil && c.LastTransitionTime.After(p.Status.StartTime.Time) {
			return c.LastTransitionTime.Time
		}
	}
	return time.Time{}
}
