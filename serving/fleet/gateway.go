package fleet

import (
	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
)

// GatewayFunction returns what a gateway has to know about a function, which has to be valid and complete.
func GatewayFunction(object *api.GPUFunction) gateway.Function {
	f := gateway.Function{
		FunctionName: gateway.FunctionName{Namespace: object.Namespace, Name: object.Name},
		SLO:          object.Spec.SLO.Latency.Value(), Protocol: protocols[object.Spec.Protocol], MaxBatch: object.Spec.Batching.MaxBatch,
		TimePerToken: object.Spec.SLO.TimePerToken.Value(),
		Callers:      object.Spec.Access.Namespaces, Aliases: object.Spec.Model.Aliases, Idempotent: object.Spec.Idempotent,
	}
	if object.InTurn() {
		f.Hold = gateway.Hold{InTime: true, Requests: MaxWaiting}
	}
	return f
}

// MaxWaiting bounds how many requests of a function wait for its turn.
const MaxWaiting = 10_000
