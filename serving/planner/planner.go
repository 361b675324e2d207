// Package planner maintains the plans of InferencePlans: the cheapest grouping of functions, with shares and batches for each group, that
// meets the functions' objectives at the rates that the gateways count. serving/rules/planning makes the decisions; this package reads objects and
// writes their status. In mode Apply it also writes, into the status of functions, which function serves the others of its group; the
// gateways and the fleet obey that.
//
// A status is also the planner's memory: it contains what a plan was based on, so that a new leader continues where the last one ended. It
// only waits until it has observed the rates for long enough.
package planner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/rules/planning"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Running describes what exists of a function at present.
type Running struct {
	Received uint64        // valid requests so far
	Replicas []share.Share // one for each GPU of each replica: its share, or, for one in reserve, its memory alone
	Others   int           // replicas of another autoscaler; what these hold is not known
}

// Planner makes and maintains plans. It implements reconcile.Reconciler. Its methods must not be called concurrently.
type Planner struct {
	// NotApplied says why no plan is applied, whatever its mode. It is nil if plans in mode Apply are.
	NotApplied error

	client   client.Client
	running  func(types.NamespacedName) Running
	recorder events.EventRecorder
	plans    map[types.NamespacedName]*memory
}

// memory is what the planner remembers of a plan besides its object.
type memory struct {
	uid     types.UID
	drift   planning.Drift
	meters  map[string]*meter // by name of the function
	written time.Time         // when only the changing numbers, such as costs, were last written

	replicas map[expectation]float64 // mean numbers of replicas, as computed by expected
	counts   int                     // how many of those were computed in this round
	data     remembered
}

// New returns a planner. The client must be able to read InferencePlans, GPUFunctions, GPUProfiles, ConfigMaps and nodes. running describes
// what exists of a function.
func New(c client.Client, running func(types.NamespacedName) Running, recorder events.EventRecorder) *Planner {
	return &Planner{client: c, running: running, recorder: recorder, plans: map[types.NamespacedName]*memory{}}
}

// period is the time after which to look at an object again, and writesPeriod the least time between two writes of numbers that always
// change.
const (
	period       = 5 * time.Second
	writesPeriod = 30 * time.Second
)

// Reconcile implements reconcile.Reconciler.
func (p *Planner) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	object := &api.InferencePlan{}
	if err := p.client.Get(ctx, request.NamespacedName, object); apierrors.IsNotFound(err) {
		delete(p.plans, request.NamespacedName)
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	m := p.plans[request.NamespacedName]
	if m == nil || m.uid != object.UID {
		m = &memory{uid: object.UID, meters: map[string]*meter{}, replicas: map[expectation]float64{}}
		p.plans[request.NamespacedName] = m
	}
	made, err := p.plan(ctx, object, m, time.Now())
	if err != nil {
		return reconcile.Result{}, err
	}
	changes, err := p.apply(ctx, object, &made)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := p.setTight(ctx, object, m, &made); err != nil {
		return reconcile.Result{}, err
	}
	// Write the plan before the changes that follow from it. Otherwise a planner that ends in between would leave changes that its successor
	// undoes.
	if err := p.write(ctx, object, m, made.status); err != nil {
		return reconcile.Result{}, err
	}
	p.announce(object, &made.status)
	if err := p.change(ctx, object, changes, made.status.Because); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: period}, nil
}

// made is the result of planning for an object.
type made struct {
	status  api.InferencePlanStatus
	data    data
	current bool // the groups are planned for the present specification and data
}

// plan returns the status and data of the plan for an object.
func (p *Planner) plan(ctx context.Context, object *api.InferencePlan, m *memory, now time.Time) (made, error) {
	made := made{status: *object.Status.DeepCopy()}
	status := &made.status
	o, err := p.observe(ctx, object, m, now)
	if err != nil {
		return made, err
	}
	made.data, err = readData(ctx, p.client, object, &m.data)
	if err == nil {
		o.basis.Data = made.data.hash
		if o.measuring != "" && !status.PlannedAt.IsZero() {
			return made, nil // this is a new leader: the plan of the last one stays until the rates are known
		}
		if err = p.replan(object, status, m, o, made.data, now); err == nil {
			made.current, err = true, complete(status)
		}
		if !status.PlannedAt.IsZero() {
			setCost(status, o, made.data)
		}
	}
	status.ObservedGeneration = object.Generation
	condition := metav1.Condition{
		Type: api.ConditionPlanned, Status: metav1.ConditionTrue, Reason: api.ReasonPlanned, Message: status.Because, ObservedGeneration: object.Generation,
	}
	if why := (*problem)(nil); errors.As(err, &why) {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, why.reason, shortened(why.message)
	} else if err != nil {
		return made, err
	}
	meta.SetStatusCondition(&status.Conditions, condition)
	return made, nil
}

// replan plans again if that is due. A *problem says why the groups do not match the present specification.
func (p *Planner) replan(object *api.InferencePlan, status *api.InferencePlanStatus, m *memory, o observation, d data, now time.Time) error {
	rule := ruleOf(object.Spec.Replan)
	if o.measuring != "" {
		return problemf(api.ReasonRateUnknown, "the rate of %s is not known for %v yet", o.measuring, rule.After)
	}
	why := "first plan"
	if !status.PlannedAt.IsZero() {
		why = m.drift.Due(rule, basisOf(status), o.basis, now)
	}
	if why != "" {
		before := len(status.Groups) > 0
		changed, err := newPlan(object, status, o, d, rule.Saving)
		if err != nil {
			return err
		}
		status.PlannedAt, status.DataHash, status.Because = metav1.NewTime(now).Rfc3339Copy(), d.hash, shortened(why)
		if changed && before {
			p.recorder.Eventf(object, nil, v1.EventTypeNormal, eventPlanned, "Plan", "%s", shortened("other groups or sizes: "+why))
		}
	}
	return nil
}

// eventPlanned says that the groups or sizes of the plan have changed. The message says why.
//
//	kind: event
//	object: InferencePlan
//	type: Normal
//	written by: gshare-controller
//	to do: nothing; see `status.groups` for the new ones
const eventPlanned = "Planned"

// eventNotApplied says that a group of the plan cannot be served by the replicas of one of its functions.
//
//	kind: event
//	object: InferencePlan
//	type: Warning
//	written by: gshare-controller
//	to do: change what the message names in the function that is to serve the others, or do nothing: until then, each function has its own replicas
const eventNotApplied = "NotApplied"

// complete returns a problem if there is no plan, or a function with requests is not part of it.
func complete(status *api.InferencePlanStatus) error {
	for _, f := range status.Unplanned {
		if number(f.RequestsPerSecond) > 0 {
			return problemf(api.ReasonNotFeasible, "%s: %s", f.Name, f.Reason)
		}
	}
	for _, f := range status.Unplanned {
		if f.SLO == "" {
			return problemf(api.ReasonNoFunction, "%s: %s", f.Name, f.Reason)
		}
	}
	if len(status.Groups) == 0 {
		return problemf(api.ReasonNoRequests, "no function gets requests")
	}
	return nil
}

// newPlan plans, and writes the groups into the status. It reports whether they have changed. least is the fraction of the cost that a
// change must save.
func newPlan(object *api.InferencePlan, status *api.InferencePlanStatus, o observation, d data, least float64) (bool, error) {
	in := planning.Input{Models: d.models, Prices: d.prices, Platform: d.terms}
	for _, mode := range object.Spec.Modes {
		in.Modes = append(in.Modes, modes[mode])
	}
	var unplanned []api.Unplanned
	for _, f := range object.Spec.Functions {
		x := o.basis.Applications[f.Name]
		if x.Rate > 0 && x.SLO > 0 {
			in.Applications = append(in.Applications, planning.Application{Name: f.Name, Model: object.Spec.Model, SLO: x.SLO, Rate: max(x.Rate, planning.MinRate)})
			continue
		}
		out := api.Unplanned{Name: f.Name, Reason: "there is no valid GPUFunction of this name"}
		if x.SLO > 0 {
			out.SLO, out.RequestsPerSecond, out.Reason = api.Duration(timeOf(x.SLO).String()), "0", "it gets no requests"
		}
		unplanned = append(unplanned, out)
	}
	var r planning.Replanned
	var separate planning.Plan
	if len(in.Applications) > 0 {
		var err error
		if r, err = planning.Replan(in, presentGroups(status.Groups, object.Spec.Model), least); err == nil {
			separate, err = planning.Separate(in)
		}
		if err != nil {
			return false, problemf(api.ReasonInvalidData, "%v", err)
		}
	}
	for _, x := range r.Plan.Infeasible {
		unplanned = append(unplanned, api.Unplanned{
			Name: x.Application.Name, SLO: api.Duration(timeOf(x.Application.SLO).String()), RequestsPerSecond: digits(x.Application.Rate, 3), Reason: shortened(x.Reason),
		})
	}
	status.Unplanned = unplanned
	model := &d.models[0]
	status.Groups, status.GroupCount = statusGroups(r.Plan.Groups, model), int32(len(r.Plan.Groups))
	status.Cost = api.PlanCost{Planned: perHour(r.Plan.Cost), Separate: perHour(separate.Cost)}
	status.Misses = part(misses(r.Plan.Groups, model))
	return r.Changed, nil
}

// misses returns the fraction of all requests that is predicted to be late.
func misses(groups []planning.Group, m *profile.Model) float64 {
	late, all := 0.0, 0.0
	for i := range groups {
		late += groups[i].Misses(m) * groups[i].Rate()
		all += groups[i].Rate()
	}
	return late / max(all, planning.MinRate)
}

// setCost sets the present cost of the functions, and the notes.
func setCost(status *api.InferencePlanStatus, o observation, d data) {
	now := o.now(d.prices)
	status.Cost.Currency, status.Cost.Now = d.prices.Currency, perHour(now)
	status.Cost.Saving = saving(now, planning.Cost(number(status.Cost.Planned)*1e9/3600))
	status.Notes = nil
	for _, note := range append(o.notes(), d.notes...) {
		if len(status.Notes) < maxNotes {
			status.Notes = append(status.Notes, shortened(note))
		}
	}
}

// maxNotes is the greatest number of notes in a status, as in its definition.
const maxNotes = 16

// write writes the status if it has changed. Present costs change all the time, so a change in these alone is written only now and then.
func (p *Planner) write(ctx context.Context, object *api.InferencePlan, m *memory, status api.InferencePlanStatus) error {
	if equality.Semantic.DeepEqual(object.Status, status) {
		return nil
	}
	same := *status.DeepCopy()
	same.Cost.Now, same.Cost.Saving = object.Status.Cost.Now, object.Status.Cost.Saving
	if equality.Semantic.DeepEqual(object.Status, same) && time.Since(m.written) < writesPeriod {
		return nil
	}
	changed := object.DeepCopy()
	changed.Status = status
	if err := p.client.Status().Patch(ctx, changed, client.MergeFrom(object)); err != nil {
		return client.IgnoreNotFound(err)
	}
	m.written = time.Now()
	return nil
}

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
