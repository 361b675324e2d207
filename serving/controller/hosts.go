package controller

import (
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/gshare-dev/gshare/serving/gateway"
	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
)

// hostOf returns the function whose replicas are to serve a function, by its status: no name if it serves itself. Whether it may is for the fleet to
// see, which knows the specifications of both.
func hostOf(f *api.GPUFunction) (host gateway.FunctionName) {
	if f.Status.ServedBy != "" {
		host = gateway.FunctionName{Namespace: f.Namespace, Name: f.Status.ServedBy}
	}
	return host
}

// hostChanged lets through the functions that are to be served by another one than before: no other change of a status is to be obeyed.
var hostChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*api.GPUFunction)
		now, also := e.ObjectNew.(*api.GPUFunction)
		return ok && also && before.Status.ServedBy != now.Status.ServedBy
	},
}
