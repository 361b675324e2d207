package controller

import (
	"context"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// functions makes the GPUFunctions of the cluster known to the fleet: reconcile.Reconciler.
type functions struct {
	client   client.Client
	fleet    *fleet.Fleet
	pods     *Pods
	gateways *Gateways
	services *services
	recorder events.EventRecorder

	mu    sync.Mutex
	begun time.Time // the first time that a function was looked at
	known map[gateway.FunctionName]known
}

// known is what is known of a function whose object is there.
type known struct {
	generation int64
	unprofiled bool
	invalid    string // why the object cannot be obeyed
}

// Reconcile implements reconcile.Reconciler.
func (r *functions) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	name := gateway.FunctionName{Namespace: request.Namespace, Name: request.Name}
	object := &api.GPUFunction{}
	if err := r.client.Get(ctx, request.NamespacedName, object); apierrors.IsNotFound(err) {
		r.fleet.Remove(name)
		r.forget(name)
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	if object.DeletionTimestamp != nil {
		r.fleet.Remove(name)
		return reconcile.Result{}, nil
	}
	if !r.settled() {
		return reconcile.Result{RequeueAfter: settlePause}, nil
	}
	memory, err := r.gpuMemory(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	complete, err := object.CompleteForCluster(memory)
	if err == nil {
		err = r.set(ctx, name, complete)
	}
	if problem := r.services.ensure(ctx, object); problem != nil { // its requests can still name it by their host
		r.recorder.Eventf(object, nil, v1.EventTypeWarning, "NoService", "Create", "%v", problem)
	}
	state := known{generation: object.Generation, unprofiled: object.Unprofiled()}
	if err != nil {
		state.invalid = err.Error()
		r.recorder.Eventf(object, nil, v1.EventTypeWarning, "Invalid", "Configure", "%s", state.invalid)
	}
	r.mu.Lock()
	r.known[name] = state
	r.mu.Unlock()
	return reconcile.Result{}, nil
}

// Times for which a new leader waits for the loads of before.
const (
	settlePause = 50 * time.Millisecond
	settleLimit = 2 * time.Second
)

// settled reports whether the gateways have said what the load was before, or have had enough time for it.
func (r *functions) settled() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.begun.IsZero() {
		r.begun = time.Now()
	}
	return r.gateways.settled() || time.Since(r.begun) > settleLimit
}

// set gives a function to the fleet: the first time with the pods that an earlier leader has left.
func (r *functions) set(ctx context.Context, name gateway.FunctionName, f *api.GPUFunction) error {
	if r.fleet.Has(name) {
		return r.fleet.Set(f)
	}
	pods := &v1.PodList{}
	if err := r.client.List(ctx, pods, client.InNamespace(f.Namespace), client.MatchingLabels{api.LabelFunction: f.Name}); err != nil {
		return err
	}
	current := fastPodOf(f).Name
	found := map[scaling.ID]bool{}
	var existing []fleet.Existing
	for at := range pods.Items {
		pod := &pods.Items[at]
		_, number, err := instanceOf(pod)
		id := scaling.ID(number)
		if err != nil || found[id] || pod.DeletionTimestamp != nil || kube.Ended(pod) {
			continue // the pods are then nobody's, and their FaSTPod's end is theirs
		}
		found[id] = true
		e := fleet.Existing{ID: id, Outdated: pod.Labels[api.LabelFaSTPod] != current}
		e.Residency, _ = residencyOf(pod)
		if address, ready := api.Address(pod); ready {
			e.Address = address
		}
		_, e.Ending = pod.Annotations[api.AnnotationDrain]
		existing = append(existing, e)
		i := fleet.Instance{Name: fleet.InstanceName(name, id), ID: id, Function: f, Share: f.Share(), Residency: e.Residency}
		r.pods.Adopt(i, pod)
		defer r.pods.Report(i.Name) // once the fleet knows it
	}
	return r.fleet.Restore(f, existing, r.gateways.Recent(name))
}

// all returns the functions whose objects are there.
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

// gpuMemory returns the memory of the smallest GPU of the cluster's nodes, on all of which a share of that memory fits, and 0 without any.
func (r *functions) gpuMemory(ctx context.Context) (share.Bytes, error) {
	nodes := &v1.NodeList{}
	if err := r.client.List(ctx, nodes); err != nil {
		return 0, err
	}
	var least share.Bytes
	for at := range nodes.Items {
		inventory, present, err := kube.InventoryOf(&nodes.Items[at])
		if err != nil || !present {
			continue // the scheduler reports it
		}
		for _, s := range inventory.Slices {
			if memory := share.Bytes(s.MemoryMiB) * share.MiB; s.Profile == "" && (least == 0 || memory < least) {
				least = memory
			}
		}
	}
	return least, nil
}
