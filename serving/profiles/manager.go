package profiles

import (
	"context"
	"log/slog"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/controller"
)

// Options configures AddTo. Its fields are those of Reconciler.
type Options struct {
	Log     *slog.Logger
	Quotas  *controller.Quotas // of the manager; must not be started yet
	Version string
	Image   func(ctx context.Context) (string, error)
}

// AddTo adds a Reconciler to a manager, which runs it while it is the leader. The pods of trials get a cache of their own: the manager's cache has
// only those of functions, and no label selector matches both.
func AddTo(m manager.Manager, o Options) error {
	ours, err := labels.NewRequirement(api.LabelProfile, selection.Exists, nil)
	if err != nil {
		return err
	}
	pods, err := cache.New(m.GetConfig(), cache.Options{
		Scheme: m.GetScheme(), Mapper: m.GetRESTMapper(), HTTPClient: m.GetHTTPClient(), DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{&v1.Pod{}: {Label: labels.NewSelector().Add(*ours)}},
	})
	if err != nil {
		return err
	}
	if err := m.Add(pods); err != nil {
		return err
	}
	if err := o.Quotas.Watch(pods, api.ProfileKind); err != nil {
		return err
	}
	r := &Reconciler{
		Client: m.GetClient(), Pods: pods, Live: m.GetAPIReader(), Quotas: o.Quotas, Events: m.GetEventRecorder(name), Log: o.Log,
		Version: o.Version, Image: o.Image,
	}
	ofProfile := handler.TypedEnqueueRequestForOwner[*v1.Pod](m.GetScheme(), m.GetRESTMapper(), &api.GPUProfile{}, handler.OnlyControllerOwner())
	return ctrl.NewControllerManagedBy(m).Named("gpuprofile").For(&api.GPUProfile{}).
		WatchesRawSource(source.Kind(pods, &v1.Pod{}, ofProfile)).
		Watches(&api.GPUFunction{}, handler.EnqueueRequestsFromMapFunc(r.profilesOf), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1.Pod{}, handler.EnqueueRequestsFromMapFunc(r.profilesOfReplica), builder.WithPredicates(predicate.NewPredicateFuncs(hasNoNode))).
		Complete(r)
}

// name is the name of the controller in events.
const name = "gshare-controller"

// hasNoNode selects pods without a node: those that a profile may have to give up its GPU for.
func hasNoNode(o client.Object) bool {
	p, isPod := o.(*v1.Pod)
	return isPod && p.Spec.NodeName == "" && p.Labels[api.LabelFunction] != ""
}

// profilesOfReplica returns the profiles that name the function of a replica.
func (r *Reconciler) profilesOfReplica(ctx context.Context, p client.Object) []reconcile.Request {
	return r.profilesNaming(ctx, p.GetNamespace(), p.GetLabels()[api.LabelFunction])
}

// profilesOf returns the profiles that name a function.
func (r *Reconciler) profilesOf(ctx context.Context, f client.Object) []reconcile.Request {
	return r.profilesNaming(ctx, f.GetNamespace(), f.GetName())
}

func (r *Reconciler) profilesNaming(ctx context.Context, namespace, function string) []reconcile.Request {
	list := &api.GPUProfileList{}
	if err := r.Client.List(ctx, list, client.InNamespace(namespace)); err != nil {
		r.Log.Warn("failed to list profiles", "error", err)
		return nil
	}
	var found []reconcile.Request
	for at := range list.Items {
		if p := &list.Items[at]; p.Spec.FunctionRef != nil && p.Spec.FunctionRef.Name == function {
			found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(p)})
		}
	}
	return found
}
