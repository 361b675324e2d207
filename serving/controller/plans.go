package controller

import (
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/planner"
)

// observedOf returns the present state of a function for its plan. What the pods of another autoscaler reserve is not known.
func observedOf(f *fleet.Fleet, l *loads, of types.NamespacedName) planner.Running {
	name := gateway.FunctionName{Namespace: of.Namespace, Name: of.Name}
	load := l.Load(name)
	s, ok := f.StatusOf(name)
	if !ok {
		return planner.Running{Received: load.Received, Others: load.Replicas}
	}
	return planner.Running{Received: load.Received, Replicas: s.Reserved}
}
