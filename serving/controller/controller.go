// Package controller serves the GPUFunctions and FaSTPods of a Kubernetes cluster: it keeps as many pods of each as their load, or their number of
// replicas, needs. It also runs serving/planner, which plans how functions with the same model are served together.
//
// serving/fleet takes the decisions, as it does on a single machine. Here its instances are pods (Pods). Its gateways are other processes (Gateways):
// they report what they count over a connection that the controller opens, and read everything else from objects. Only the leader acts. All state
// that it must not lose is in the cluster: instances are pods with labels, and the gateways keep the load of the last two minutes.
package controller

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	autoscaling "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/planner"
	"github.com/gshare-dev/gshare/serving/report"
)

// Scheme returns the types that the controller reads and writes.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	if err := clientscheme.AddToScheme(s); err != nil {
		return nil, err
	}
	return s, api.AddToScheme(s)
}

// CacheOptions returns what the controller's cache holds. Of pods, Services and NetworkPolicies it holds those of functions and FaSTPods, of
// EndpointSlices those of the gateways' Service for reports, and of ConfigMaps the data of InferencePlans.
func CacheOptions(service client.ObjectKey) (cache.Options, error) {
	ours, err := labels.NewRequirement(api.LabelFaSTPod, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, err
	}
	ofFunctions, err := labels.NewRequirement(api.LabelFunction, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, err
	}
	ofPlans, err := labels.NewRequirement(api.LabelPlanData, selection.Exists, nil)
	if err != nil {
		return cache.Options{}, err
	}
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&v1.Pod{}:                   {Label: labels.NewSelector().Add(*ours), Transform: slimPod},
			&v1.Service{}:               {Label: labels.NewSelector().Add(*ofFunctions)},
			&networking.NetworkPolicy{}: {Label: labels.NewSelector().Add(*ofFunctions)},
			&v1.ConfigMap{}:             {Label: labels.NewSelector().Add(*ofPlans)},
			&discovery.EndpointSlice{}: {
				Namespaces: map[string]cache.Config{service.Namespace: {LabelSelector: labels.SelectorFromSet(labels.Set{discovery.LabelServiceName: service.Name})}},
			},
		},
	}, nil
}

// Options configures a controller.
type Options struct {
	Service client.ObjectKey // the Service whose endpoints are the gateways' ports for reports
	// Gateway is the host name of the gateways' Service for requests, for which the Services of functions are aliases.
	Gateway string
	Log     *slog.Logger
	Metrics prometheus.Registerer // gets the metrics of the fleet, gshare_fleet_
	// Quotas is the account of the pods that this process creates. It may be nil if nothing else in the process creates any.
	Quotas *Quotas
	// ProfileFunctions makes the controller create a GPUProfile for functions that state only their objective (GPUFunction.SaysOnlyObjective).
	ProfileFunctions bool
	// Admit returns an error for a function that the controller is not to run. It may be nil.
	Admit func(*api.GPUFunction) error
	// NotApplied says why no InferencePlan is applied, whatever its mode. It is nil if plans in mode Apply are.
	NotApplied error
	// Watch passes the reports of the gateway at an address to receive until the connection ends.
	Watch func(ctx context.Context, address string, receive func(report.Report)) error
	// Advise tells other autoscalers how many replicas the functions need that they scale. It runs until ctx ends, while this process leads; its
	// error ends the manager. It may be nil.
	Advise func(ctx context.Context, a *fleet.Advisor) error
}

// AddTo adds a controller to a manager, whose cache has the options of CacheOptions.
func AddTo(m manager.Manager, o Options) error {
	pods := NewPods(m.GetClient(), m.GetAPIReader(), m.GetEventRecorder(name), o.Log)
	pods.quotas = cmp.Or(o.Quotas, pods.quotas)
	loads := newLoads()
	pods.waitStopped = loads.waitStopped
	advisor := fleet.NewAdvisor(loads.Load, o.Log)
	gateways := &Gateways{loads: loads, client: m.GetClient(), pods: pods, advisor: advisor, backOffs: map[gateway.FunctionName]backOff{}}
	moving := &moves{pods: pods, recorder: m.GetEventRecorder(name), log: o.Log, atOnce: movesAtOnce}
	f, err := fleet.New(fleet.Config{
		Gateways: gateways, Platform: pods, Log: o.Log, KeepReplicas: true, Decided: recordDecisions(m.GetEventRecorder(name)), Moved: moving.note,
	}, nil)
	if err != nil {
		return err
	}
	moving.fleet = f
	times := newLoopTimes()
	if err := errors.Join(o.Metrics.Register(f), o.Metrics.Register(advisor), o.Metrics.Register(times)); err != nil {
		return err
	}
	link := &links{client: m.GetClient(), service: o.Service, loads: gateways.loads, log: o.Log}
	link.watch = func(ctx context.Context, name, address string) error {
		return o.Watch(ctx, address, func(r report.Report) { gateways.receive(name, r) })
	}
	known := &functions{
		client: m.GetClient(), fleet: f, advisor: advisor, pods: pods, gateways: gateways,
		services: &services{client: m.GetClient(), live: m.GetAPIReader(), gateway: o.Gateway},
		networks: &networkPolicies{client: m.GetClient(), live: m.GetAPIReader(), gateways: o.Service.Namespace}, recorder: m.GetEventRecorder(name), known: map[gateway.FunctionName]known{},
		profileUnasked: o.ProfileFunctions, admit: o.Admit,
	}
	objects := &functionObjects{}
	status := &statusWriter{client: m.GetClient(), objects: objects.all, fleet: f, advisor: advisor, functions: known, gateways: gateways, log: o.Log, time: times.WithLabelValues("status")}
	moving.time = times.WithLabelValues("moves")
	making := &room{client: m.GetClient(), live: m.GetAPIReader(), fleet: f, pods: pods, recorder: m.GetEventRecorder(name), log: o.Log, time: times.WithLabelValues("room")}
	turning := &turns{pods: pods, load: loads.Load, began: time.Now(), known: map[string]turnOf{}}
	if o.Advise != nil {
		if err := m.Add(manager.RunnableFunc(func(ctx context.Context) error { return o.Advise(ctx, advisor) })); err != nil {
			return err
		}
	}
	for _, run := range []func(context.Context){f.Run, advisor.Run, pods.Run, pods.quotas.Run, link.Run, status.Run, making.Run, moving.Run, turning.Run} {
		if err := m.Add(manager.RunnableFunc(func(ctx context.Context) error { run(ctx); return nil })); err != nil {
			return err
		}
	}
	if err := addIndexes(m.GetFieldIndexer()); err != nil {
		return err
	}
	if err := errors.Join(pods.quotas.Watch(m.GetCache(), api.FaSTPodKind), pods.watch(m.GetCache()), objects.watch(m.GetCache())); err != nil {
		return err
	}
	if err := ctrl.NewControllerManagedBy(m).Named("gpufunction").
		For(&api.GPUFunction{}, builder.WithPredicates(predicate.Or(predicate.GenerationChangedPredicate{}, hostChanged))).Owns(&v1.Service{}).Owns(&networking.NetworkPolicy{}).
		Owns(&api.FaSTPod{}, builder.WithPredicates(comeAndGone)). // for autoscalers configured to scale a FaSTPod before it exists
		Watches(&autoscaling.HorizontalPodAutoscaler{}, handler.EnqueueRequestsFromMapFunc(known.scaledBy), builder.WithPredicates(targetChanged)).
		Watches(&api.GPUProfile{}, handler.EnqueueRequestsFromMapFunc(known.functionsOf), builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool { return recommends(e.ObjectOld, e.ObjectNew) },
		})).
		Complete(known); err != nil {
		return err
	}
	if err := ctrl.NewControllerManagedBy(m).Named("sharepolicy").
		For(&api.SharePolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).Complete(&policies{client: m.GetClient(), quotas: pods.quotas}); err != nil {
		return err
	}
	plans := planner.New(m.GetClient(), func(of types.NamespacedName) planner.Running { return observedOf(f, loads, of) }, m.GetEventRecorder(name))
	plans.NotApplied = o.NotApplied
	if err := ctrl.NewControllerManagedBy(m).Named("inferenceplan").
		For(&api.InferencePlan{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).Complete(plans); err != nil {
		return err
	}
	releaser := planner.NewReleaser(m.GetClient(), m.GetEventRecorder(name))
	if err := ctrl.NewControllerManagedBy(m).Named("servedby").
		For(&api.GPUFunction{}, builder.WithPredicates(hostChanged)).
		Watches(&api.InferencePlan{}, handler.EnqueueRequestsFromMapFunc(releaser.Of), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(releaser); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(m).Named("fastpod").
		For(&api.FaSTPod{}).Watches(&v1.Pod{}, podChanges{}).Complete(&fastPods{client: m.GetClient(), live: m.GetAPIReader(), quotas: pods.quotas, recorder: m.GetEventRecorder(name)})
}

// name is the controller's name in events.
const name = "gshare-controller"
