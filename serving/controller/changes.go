package controller

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
)

// countPause is how long the counts of a function's FaSTPod may lag behind its pods. A pod that starts or ends changes several times in quick
// succession, and each count takes one or two writes.
const countPause = 2 * time.Second

// podChanges queues the FaSTPod that controls a pod when the pod changes: at once if it creates and deletes its pods itself, or after countPause if
// it only counts those of a function.
type podChanges struct{}

var _ handler.EventHandler = podChanges{}

type fastPodQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Create implements handler.EventHandler.
func (podChanges) Create(_ context.Context, e event.CreateEvent, q fastPodQueue) {
	lookLater(e.Object, q)
}

// Update implements handler.EventHandler.
func (podChanges) Update(_ context.Context, e event.UpdateEvent, q fastPodQueue) {
	lookLater(e.ObjectOld, q)
	lookLater(e.ObjectNew, q)
}

// Delete implements handler.EventHandler.
func (podChanges) Delete(_ context.Context, e event.DeleteEvent, q fastPodQueue) {
	lookLater(e.Object, q)
}

// Generic implements handler.EventHandler.
func (podChanges) Generic(_ context.Context, e event.GenericEvent, q fastPodQueue) {
	lookLater(e.Object, q)
}

func lookLater(pod client.Object, q fastPodQueue) {
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind != api.FaSTPodKind {
		return
	}
	request := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: pod.GetNamespace(), Name: owner.Name}}
	if _, counted := pod.GetLabels()[api.LabelInstance]; counted {
		q.AddAfter(request, countPause)
		return
	}
	q.Add(request)
}
