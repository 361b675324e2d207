package controller

import (
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
)

// functionOf returns the function with a name in the namespace of f, or no function if the name is empty. Whether it may serve the requests of f is
// checked by the fleet, which knows the specifications of both.
func functionOf(f *api.GPUFunction, name string) (other gateway.FunctionName) {
	if name != "" {
		other = gateway.FunctionName{Namespace: f.Namespace, Name: name}
	}
	return other
}

// hostChanged passes updates of functions only if Status.ServedBy has changed, the only field of a status that the controller acts on.
var hostChanged = predicate.Funcs{
	UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*api.GPUFunction)
		now, also := e.ObjectNew.(*api.GPUFunction)
		return ok && also && before.Status.ServedBy != now.Status.ServedBy
	},
}
