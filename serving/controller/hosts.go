package controller

import (
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/gshare-dev/gshare/serving/gateway"
	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
)

// functionOf returns the function that has a name in the namespace of another one, no name without one. Whether it may serve the other is for the fleet to
// see, which knows the specifications of both.
func functionOf(f *api.GPUFunction, name string) (other gateway.FunctionName) {
	if name != "" {
		other = gateway.FunctionName{Namespace: f.Namespace, Name: name}
	}
	return other
}

// hostChanged lets through the functions that are to be served by another one than before: no other change of a status is to be obeyed.
var hostChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*api.GPUFunction)
		now, also := e.ObjectNew.(*api.GPUFunction)
		return ok && also && before.Status.ServedBy != now.Status.ServedBy
	},
}
