package planner

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/rules/planning"
)

// observation is what is known of the functions of a plan at one time.
type observation struct {
	basis     planning.Basis // without Data
	measuring string         // a function whose rate is not known yet
	running   map[string]Running
}

// observe reads the state and the rates of the functions of a plan.
func (p *Planner) observe(ctx context.Context, object *api.InferencePlan, m *memory, now time.Time) (observation, error) {
	o := observation{basis: planning.Basis{Applications: map[string]planning.Observed{}}, running: map[string]Running{}}
	span := ruleOf(object.Spec.Replan).After
	listed := map[string]bool{}
	for _, f := range object.Spec.Functions {
		listed[f.Name] = true
		function := &api.GPUFunction{}
		err := p.client.Get(ctx, client.ObjectKey{Namespace: object.Namespace, Name: f.Name}, function)
		if apierrors.IsNotFound(err) {
			o.basis.Applications[f.Name] = planning.Observed{}
			delete(m.meters, f.Name)
			continue
		} else if err != nil {
			return observation{}, err
		}
		running := p.running(types.NamespacedName{Namespace: object.Namespace, Name: f.Name})
		o.running[f.Name] = running
		if m.meters[f.Name] == nil {
			m.meters[f.Name] = &meter{}
		}
		counter := m.meters[f.Name]
		counter.observe(running.Received, now, span)
		rate, known := counter.rate(span)
		if f.RequestsPerSecond > 0 {
			rate, known = f.RequestsPerSecond, true
		}
		if !known && o.measuring == "" {
			o.measuring = f.Name
		}
		o.basis.Applications[f.Name] = planning.Observed{SLO: seconds(function.Spec.SLO.Latency.Value()), Rate: rate}
	}
	maps.DeleteFunc(m.meters, func(name string, _ *meter) bool { return !listed[name] })
	return o, nil
}

// now returns the present cost per second of everything that the existing replicas hold.
func (o observation) now(prices planning.PriceList) planning.Cost {
	var sum planning.Cost
	for _, r := range o.running {
		for _, held := range r.Replicas {
			sum += prices.OfShare(held)
		}
	}
	return sum
}

// Defaults of the fields of Replan, as in the definition of the resource.
const (
	defaultDrift  = 20 // percent
	defaultAfter  = time.Minute
	defaultSaving = 5 // percent
)

// ruleOf returns when to plan again.
func ruleOf(r api.Replan) planning.ReplanRule {
	rule := planning.ReplanRule{Drift: defaultDrift / 100., After: defaultAfter, Saving: defaultSaving / 100.}
	if r.DriftPercent != nil {
		rule.Drift = float64(*r.DriftPercent) / 100
	}
	if after := r.After.Value(); after > 0 {
		rule.After = after
	}
	if r.MinSavingPercent != nil {
		rule.Saving = float64(*r.MinSavingPercent) / 100
	}
	return rule
}

// notes names the functions whose present cost is not known.
func (o observation) notes() []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(o.running)) {
		if o.running[name].Others > 0 {
			all = append(all, fmt.Sprintf("%s: cost.now leaves out its pods, which are another autoscaler's", name))
		}
	}
	return all
}
