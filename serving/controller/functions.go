package controller

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// functions makes the GPUFunctions of the cluster known to the fleet. It implements reconcile.Reconciler.
type functions struct {
	client   client.Client
	fleet    *fleet.Fleet
	advisor  *fleet.Advisor // for functions that another autoscaler scales
	pods     *Pods
	gateways *Gateways
	services *services
	networks *networkPolicies
	recorder events.EventRecorder
	// profileUnasked says that functions which state only their objective are profiled, too.
	profileUnasked bool
	admit          func(*api.GPUFunction) error // Options.Admit

	mu    sync.Mutex
	begun time.Time // when a function was first looked at
	known map[gateway.FunctionName]known
}

// known is what is known about a function whose object exists.
type known struct {
	uid        types.UID
	generation int64
	unprofiled bool
	invalid    string                     // why the object is not valid; empty if it is
	conflict   string                     // which other autoscalers are configured to scale it
	profile    string                     // name of its GPUProfile; empty if it has none
	profiled   *api.ProfileRecommendation // nil if there is none
}

// Reconcile implements reconcile.Reconciler.
func (r *functions) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	name := gateway.FunctionName{Namespace: request.Namespace, Name: request.Name}
	object := &api.GPUFunction{}
	if err := r.client.Get(ctx, request.NamespacedName, object); apierrors.IsNotFound(err) {
		r.remove(name)
		r.forget(name)
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	if object.DeletionTimestamp != nil {
		r.remove(name)
		return reconcile.Result{}, nil
	}
	r.mu.Lock()
	before, seen := r.known[name]
	r.mu.Unlock()
	if seen && before.uid != object.UID { // deleted and created again: the replicas of the earlier function go with it
		r.remove(name)
	}
	if !r.settled() {
		return reconcile.Result{RequeueAfter: settlePause}, nil
	}
	var memory share.Bytes
	if object.Spec.Resources.Share == nil && !object.External() {
		var err error
		if memory, err = r.gpuMemory(ctx); err != nil {
			return reconcile.Result{}, err
		}
	}
	object, unmade := r.takeProfile(ctx, object)
	var result reconcile.Result
	state := known{uid: object.UID, generation: object.Generation, unprofiled: object.Unprofiled(), profile: r.profileOf(object), profiled: object.Status.Profiled}
	complete, err := object.CompleteForCluster(memory)
	if err == nil && r.admit != nil {
		err = r.admit(complete)
	}
	switch {
	case err == nil && complete.External():
		if err = r.advisor.Set(complete, r.gateways.Recent(name)); err == nil {
			r.fleet.Remove(name) // after Set, so that the load counted so far is kept
			if err := r.deleteLeft(ctx, name, complete); err != nil {
				return reconcile.Result{}, err
			}
		}
	case err == nil:
		r.advisor.Remove(name)
		var left []*v1.Pod
		if left, err = r.left(ctx, name, complete); err != nil {
			return reconcile.Result{}, err
		}
		if err = r.set(name, complete, left); err == nil {
			r.fleet.SetHost(name, functionOf(object, object.Status.ServedBy), functionOf(object, object.Status.Host))
		}
	case memory == 0 && object.Spec.Resources.Share == nil && object.Status.Profiled == nil && !object.External():
		result.RequeueAfter = gpuPause
	}
	if unmade != nil { // the function serves without a profile, or with what it recommended before
		r.recorder.Eventf(object, nil, v1.EventTypeWarning, eventNoProfile, "Create", "%s", shortened(unmade.Error(), maxNote))
		result.RequeueAfter = objectPause
	}
	if problem := r.services.ensure(ctx, object); problem != nil { // requests can still name the function by their host
		r.recorder.Eventf(object, nil, v1.EventTypeWarning, eventNoService, "Create", "%s", shortened(problem.Error(), maxNote))
		result.RequeueAfter = objectPause
	}
	if problem := r.networks.ensure(ctx, object); problem != nil {
		r.recorder.Eventf(object, nil, v1.EventTypeWarning, eventNoNetworkPolicy, "Create", "%s", shortened(problem.Error(), maxNote))
		result.RequeueAfter = objectPause
	}
	var unread error
	state.conflict, unread = r.reviewConflict(ctx, object, before.conflict)
	if err != nil {
		state.invalid = err.Error()
		if !reflect.DeepEqual(state, before) {
			r.recorder.Eventf(object, nil, v1.EventTypeWarning, eventInvalid, "Configure", "%s", shortened(state.invalid, maxNote))
		}
	}
	r.mu.Lock()
	r.known[name] = state
	r.mu.Unlock()
	return result, unread
}

// remove ends the replicas of a function and forgets what the gateways have counted for it.
func (r *functions) remove(name gateway.FunctionName) {
	r.advisor.Remove(name)
	r.fleet.Remove(name)
	if !r.fleet.Has(name) {
		r.gateways.RemoveFunction(name)
	}
}

// gpuPause is the time after which a function that needs a GPU is looked at again while no node has one.
const gpuPause = 5 * time.Second

// objectPause is the time after which the Service and the NetworkPolicy of a function are tried again. The API server may have been unreachable. Or
// another object has had the name, and its changes are not watched.
const objectPause = 10 * time.Second

// Times for which a new leader waits for the gateways to report the earlier load: between two checks, and at most.
const (
	settlePause = 50 * time.Millisecond
	settleLimit = 2 * time.Second
)

// settled reports whether the gateways have reported the earlier load, or have had enough time to do so.
func (r *functions) settled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.begun.IsZero() {
		r.begun = time.Now()
	}
	return r.gateways.settled() || time.Since(r.begun) > settleLimit
}

// left returns the pods of a function that an earlier leader has left, one for each instance, and deletes those that are of no use. It returns none
// for a function that the fleet already knows.
func (r *functions) left(ctx context.Context, name gateway.FunctionName, f *api.GPUFunction) ([]*v1.Pod, error) {
	if r.fleet.Has(name) {
		return nil, nil
	}
	list := &v1.PodList{}
	if err := r.client.List(ctx, list, client.InNamespace(f.Namespace), client.MatchingFields{byFunction: f.Name}); err != nil {
		return nil, err
	}
	found := map[int]bool{}
	var left []*v1.Pod
	for at := range list.Items {
		pod := &list.Items[at]
		_, id, err := instanceOf(pod)
		if err != nil || pod.DeletionTimestamp != nil {
			continue
		}
		if of, err := r.isOf(ctx, pod, f); err != nil {
			return nil, err
		} else if !of {
			continue // not the function's, whatever its labels say
		}
		if found[id] || kube.Ended(pod) {
			if err := r.pods.delete(ctx, pod); err != nil {
				return nil, err
			}
			continue
		}
		found[id] = true
		left = append(left, pod)
	}
	return left, nil
}

// deleteLeft deletes the pods that an earlier leader has left of a function that another autoscaler now scales, since nobody else would.
func (r *functions) deleteLeft(ctx context.Context, name gateway.FunctionName, f *api.GPUFunction) error {
	left, err := r.left(ctx, name, f)
	for _, pod := range left {
		err = errors.Join(err, r.pods.delete(ctx, pod))
	}
	return err
}

// isOf reports whether a pod is controlled by a FaSTPod that the function controls.
func (r *functions) isOf(ctx context.Context, pod *v1.Pod, f *api.GPUFunction) (bool, error) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != api.FaSTPodKind {
		return false, nil
	}
	fp := &api.FaSTPod{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: pod.Namespace, Name: owner.Name}, fp); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return fp.UID == owner.UID && metav1.IsControlledBy(fp, f), nil
}

// set passes a function to the fleet, together with the pods that an earlier leader has left.
func (r *functions) set(name gateway.FunctionName, f *api.GPUFunction, left []*v1.Pod) error {
	if r.fleet.Has(name) {
		return r.fleet.Set(f)
	}
	current := map[string]*api.GPUFunction{} // by the name of the FaSTPod
	for _, v := range f.Variants() {
		current[fastPodOf(v).Name] = v
	}
	var existing []fleet.Existing
	for _, pod := range left {
		_, number, err := instanceOf(pod)
		if err != nil {
			return err
		}
		of, known := current[pod.Labels[api.LabelFaSTPod]]
		if !known {
			of = f
		}
		e := fleet.Existing{ID: scaling.ID(number), Share: of.Share(), Outdated: !known, UnreadySince: unreadySince(pod)}
		if !takesTurns(pod) {
			e.Residency = residencyOf(pod)
		}
		if address, serves := addressOf(pod); serves {
			e.Address = address
		}
		_, e.Ending = pod.Annotations[api.AnnotationDrain]
		e.From = movesFrom(pod)
		existing = append(existing, e)
		i := fleet.Instance{Name: fleet.InstanceName(name, e.ID), ID: e.ID, Function: of, Share: e.Share, Residency: e.Residency, Move: fleet.Move{From: e.From}}
		r.pods.Adopt(i, pod)
		defer r.pods.Report(i.Name) // once the fleet knows it
	}
	return r.fleet.Restore(f, existing, r.gateways.Recent(name))
}

// all returns the functions whose objects exist.
func (r *functions) all() map[gateway.FunctionName]known {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.known)
}

func (r *functions) forget(name gateway.FunctionName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.known, name)
}

// gpuMemory returns the memory of the smallest GPU of the cluster's nodes, so that a share with that much memory fits on all of them. It is 0 if
// there are no GPUs.
func (r *functions) gpuMemory(ctx context.Context) (share.Bytes, error) {
	nodes := &v1.NodeList{}
	if err := r.client.List(ctx, nodes); err != nil {
		return 0, err
	}
	var least share.Bytes
	for at := range nodes.Items {
		inventory, present, err := kube.InventoryOf(&nodes.Items[at])
		if err != nil || !present {
			continue // if the inventory is invalid, the scheduler reports it
		}
		for _, s := range inventory.Slices {
			if memory := share.Bytes(s.MemoryMiB) * share.MiB; s.Profile == "" && (least == 0 || memory < least) {
				least = memory
			}
		}
	}
	return least, nil
}
