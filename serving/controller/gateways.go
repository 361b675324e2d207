package controller

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/report"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// Gateways is fleet.Gateways for gateways that are other processes. What they report is in loads. What they have to know they read from objects:
// functions, pods and their annotations.
type Gateways struct {
	*loads
	client  client.Client
	pods    *Pods
	advisor *fleet.Advisor // for the functions that the fleet does not have

	mu       sync.Mutex
	backOffs map[gateway.FunctionName]backOff
}

// receive records a report of the gateway with a name.
func (g *Gateways) receive(name string, r report.Report) {
	functions := make([]functionReport, 0, len(r.Functions))
	for _, f := range r.Functions {
		var drained map[string]bool
		if len(f.Drained) > 0 {
			drained = make(map[string]bool, len(f.Drained))
		}
		for _, pod := range f.Drained {
			drained[pod] = true
		}
		functions = append(functions, functionReport{f.FunctionName, reported{load: f.Load, recent: f.Seconds, drained: drained, busy: f.Busy}, f.WaitsForReplica})
	}
	g.report(name, r.Incarnation, functions)
	for _, f := range functions {
		if f.waits {
			g.advisor.Wake(f.name)
		}
	}
}

// Waiting implements fleet.Gateways.
func (g *Gateways) Waiting() <-chan gateway.FunctionName { return g.waiting }

// SetFunction implements fleet.Gateways: gateways read the object.
func (g *Gateways) SetFunction(gateway.Function) error { return nil }

// RemoveFunction implements fleet.Gateways. The load of a function that another autoscaler now scales is kept: if its counters started again from
// zero, all its earlier requests would look like those of one second.
func (g *Gateways) RemoveFunction(name gateway.FunctionName) {
	if _, advised, _ := g.advisor.Wanted(name); !advised {
		g.forget(name)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.backOffs, name)
}

// SetReplicas implements fleet.Gateways: the residency is an annotation of the pod, which gateways and the agent of its node read.
func (g *Gateways) SetReplicas(_ gateway.FunctionName, replicas []gateway.Replica) error {
	for _, r := range replicas {
		if r.Residency < scaling.Cold { // a replica that is being drained has none
			g.pods.setResidency(r.ID, r.Residency)
		}
	}
	return nil
}

// SetBackOff implements fleet.Gateways. The back-off becomes a condition of the object.
func (g *Gateways) SetBackOff(name gateway.FunctionName, _ time.Time, why string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.backOffs[name] = backOff{why}
}

func (g *Gateways) backOff(name gateway.FunctionName) backOff {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.backOffs[name]
}

// Drain implements fleet.Gateways.
func (g *Gateways) Drain(ctx context.Context, name gateway.FunctionName, replica string) error {
	key, found := g.pods.keyOf(replica)
	if !found {
		return nil
	}
	if err := g.annotate(ctx, key, map[string]string{api.AnnotationDrain: time.Now().UTC().Format(time.RFC3339)}); err != nil {
		return err
	}
	return g.waitDrained(ctx, name, key.Name)
}

// IsBusy implements fleet.Gateways.
func (g *Gateways) IsBusy(name gateway.FunctionName, replica string) bool {
	key, found := g.pods.keyOf(replica)
	return found && g.isBusy(name, key.Name)
}

// annotate sets annotations of a pod, if it still exists. It tries again until ctx ends.
func (g *Gateways) annotate(ctx context.Context, pod client.ObjectKey, annotations map[string]string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return err
	}
	for pause := redialMin; ; pause = min(2*pause, redialMax) {
		err := g.client.Patch(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}, client.RawPatch(types.MergePatchType, patch))
		if err == nil || apierrors.IsNotFound(err) {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}
