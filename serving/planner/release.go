package planner

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// Releaser makes functions serve themselves again once no plan in mode Apply names them. It is a reconcile.Reconciler of GPUFunctions. What it does
// follows only from the objects that exist, whatever happened in the meantime. Plans therefore need no finalizer, which would keep them and their
// namespace from being deleted while no controller runs.
type Releaser struct {
	client   client.Client
	recorder events.EventRecorder
}

// NewReleaser returns a Releaser. The client must be able to read InferencePlans and GPUFunctions.
func NewReleaser(c client.Client, recorder events.EventRecorder) *Releaser {
	return &Releaser{client: c, recorder: recorder}
}

// Reconcile implements reconcile.Reconciler.
func (r *Releaser) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	f := &api.GPUFunction{}
	if err := r.client.Get(ctx, request.NamespacedName, f); apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil
	} else if err != nil || f.Status.ServedBy == "" {
		return reconcile.Result{}, err
	}
	plans := &api.InferencePlanList{}
	if err := r.client.List(ctx, plans, client.InNamespace(request.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, err
	}
	if responsible(plans.Items, f.Name) != nil {
		return reconcile.Result{}, nil // that plan decides
	}
	if err := serve(ctx, r.client, r.recorder, change{f, ""}, "No InferencePlan that is applied names it"); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: period}, nil // look again whether the change has taken effect
}

// Of returns the functions to look at after a plan has changed or was deleted.
func (r *Releaser) Of(ctx context.Context, plan client.Object) (all []reconcile.Request) {
	functions := &api.GPUFunctionList{}
	if err := r.client.List(ctx, functions, client.InNamespace(plan.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return nil // the cache has been stopped
	}
	for i := range functions.Items {
		if f := &functions.Items[i]; f.Status.ServedBy != "" {
			all = append(all, reconcile.Request{NamespacedName: types.NamespacedName{Namespace: f.Namespace, Name: f.Name}})
		}
	}
	return all
}
