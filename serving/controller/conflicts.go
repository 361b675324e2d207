package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"

	autoscaling "k8s.io/api/autoscaling/v2"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// foreignScaler is another autoscaler that is configured to scale what gshare scales. For KEDA it is the ScaledObject that a user has written, not
// the HorizontalPodAutoscaler that KEDA makes for each ScaledObject that it can act on.
type foreignScaler struct {
	object v1.ObjectReference
	target string // kind and name
}

func (s foreignScaler) String() string {
	return fmt.Sprintf("%s %s is told to scale %s", s.object.Kind, s.object.Name, s.target)
}

// reviewConflict returns which other autoscalers are configured to scale a function that gshare scales, and records an event for each one that is
// new. gshare goes on: what it wants of the FaSTPods of functions overwrites what others want.
func (r *functions) reviewConflict(ctx context.Context, f *api.GPUFunction, before string) (string, error) {
	found, err := r.foreignScalers(ctx, f)
	if err != nil || len(found) == 0 {
		return "", err
	}
	known := strings.Split(strings.TrimSuffix(before, ". "+conflictHelp), "; ")
	var texts []string
	for _, s := range found {
		texts = append(texts, s.String())
		if !slices.Contains(known, s.String()) {
			r.recorder.Eventf(f, &s.object, v1.EventTypeWarning, eventForeignScaler, "Scale", "%s", shortened(s.String()+". "+conflictHelp, maxNote))
		}
	}
	return strings.Join(texts, "; ") + ". " + conflictHelp, nil
}

const conflictHelp = "It has no effect, as gshare scales this function: delete it, or set scaling.autoscaler to External"

// foreignScalers returns the autoscalers that are configured to scale a function or one of its FaSTPods, sorted by name.
func (r *functions) foreignScalers(ctx context.Context, f *api.GPUFunction) ([]foreignScaler, error) {
	if f.External() {
		return nil, nil
	}
	list := &autoscaling.HorizontalPodAutoscalerList{}
	if err := r.client.List(ctx, list, client.InNamespace(f.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	var found []foreignScaler
	for at := range list.Items {
		scaler := &list.Items[at]
		function, err := r.functionOf(ctx, scaler)
		if err != nil {
			return nil, err
		}
		if target := scaler.Spec.ScaleTargetRef; function == f.Name {
			found = append(found, foreignScaler{writtenAs(scaler), target.Kind + " " + target.Name})
		}
	}
	slices.SortFunc(found, func(a, b foreignScaler) int { return strings.Compare(a.String(), b.String()) })
	return found, nil
}

// functionOf returns the name of the function that an autoscaler is configured to scale, directly or by one of its FaSTPods. It is empty if there is none.
func (r *functions) functionOf(ctx context.Context, scaler *autoscaling.HorizontalPodAutoscaler) (string, error) {
	target := scaler.Spec.ScaleTargetRef
	if group, err := schema.ParseGroupVersion(target.APIVersion); err != nil || group.Group != api.GroupVersion.Group {
		return "", nil // autoscalers ignore the version
	}
	switch target.Kind {
	case api.Kind:
		return target.Name, nil
	case api.FaSTPodKind:
		fp := &api.FaSTPod{}
		if err := r.client.Get(ctx, client.ObjectKey{Namespace: scaler.Namespace, Name: target.Name}, fp); err != nil {
			return "", client.IgnoreNotFound(err)
		}
		if fp.Spec.FunctionRef != nil {
			return fp.Spec.FunctionRef.Name, nil
		}
	}
	return "", nil
}

// writtenAs returns the object that a user has written: the autoscaler itself, or the ScaledObject for which KEDA has made it.
func writtenAs(scaler *autoscaling.HorizontalPodAutoscaler) v1.ObjectReference {
	if owner := metav1.GetControllerOf(scaler); owner != nil && owner.Kind == "ScaledObject" {
		return v1.ObjectReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Namespace: scaler.Namespace, Name: owner.Name, UID: owner.UID}
	}
	return v1.ObjectReference{
		APIVersion: autoscaling.SchemeGroupVersion.String(), Kind: "HorizontalPodAutoscaler", Namespace: scaler.Namespace, Name: scaler.Name, UID: scaler.UID,
	}
}

// scaledBy is the handler.MapFunc that queues the function that an autoscaler is configured to scale.
func (r *functions) scaledBy(ctx context.Context, object client.Object) []reconcile.Request {
	scaler, ok := object.(*autoscaling.HorizontalPodAutoscaler)
	if !ok {
		return nil
	}
	name, err := r.functionOf(ctx, scaler)
	if err != nil || name == "" { // when the FaSTPod is created, that is an event of its own
		return nil
	}
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Namespace: scaler.Namespace, Name: name}}}
}

// targetChanged passes events of autoscalers only if their target may have changed: their status alone changes every 15 seconds.
var targetChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, _ := e.ObjectOld.(*autoscaling.HorizontalPodAutoscaler)
	now, _ := e.ObjectNew.(*autoscaling.HorizontalPodAutoscaler)
	return before == nil || now == nil || before.Spec.ScaleTargetRef != now.Spec.ScaleTargetRef
}}

// comeAndGone passes only the creation and the deletion of objects.
var comeAndGone = predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
