package planner

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/rules/planning"
)

// change sets the host in the status of a function, or clears it.
type change struct {
	function *api.GPUFunction
	host     string
}

// apply writes into the status of a plan how its groups are served, and returns the changes that may be made now. The others follow in later rounds.
//
// The wanted state follows from the groups alone, which the status remembers, and the present state from the functions. A planner that ends after any
// write therefore leaves the rest to the next one.
func (p *Planner) apply(ctx context.Context, object *api.InferencePlan, made *made) ([]change, error) {
	status := &made.status
	switch {
	case object.Spec.Mode != api.Apply:
		meta.RemoveStatusCondition(&status.Conditions, api.ConditionApplied) // Releaser makes the functions serve themselves
		for i := range status.Groups {
			status.Groups[i].Host, status.Groups[i].Applied = "", ""
		}
		return nil, nil
	case !made.current: // until there is a plan for the present specification, nothing changes
		if meta.FindStatusCondition(status.Conditions, api.ConditionApplied) == nil {
			setApplied(object, status, metav1.ConditionFalse, api.ReasonNotPlanned, "there is no plan: see the condition Planned")
		}
		return nil, nil
	}
	objects, plans, err := p.namespace(ctx, object.Namespace)
	if err != nil {
		return nil, err
	}
	now, wanted, ready := map[string]string{}, map[string]string{}, map[string]bool{}
	for name, f := range objects {
		now[name], ready[name] = f.Status.ServedBy, f.Status.ReadyReplicas > 0
	}
	for _, f := range object.Spec.Functions {
		if by := responsible(plans, f.Name); by != nil && by.Name == object.Name && objects[f.Name] != nil {
			wanted[f.Name] = ""
		}
	}
	told := account{}
	if p.NotApplied == nil {
		told = settle(object, made, objects, plans, wanted)
	} else {
		told.problems = []string{p.NotApplied.Error()}
		for i := range status.Groups {
			status.Groups[i].Host, status.Groups[i].Applied = "", ""
		}
	}
	next, waits := steps(now, wanted, ready)
	for name, host := range wanted {
		if host != "" && now[name] == host && objects[name].Status.Host != host {
			waits[name] = name + " has its own replicas until " + host + " has those for both"
		}
	}
	told.conclude(object, status, next, waits)
	var changes []change
	for _, s := range next {
		changes = append(changes, change{objects[s.function], s.host})
	}
	return changes, nil
}

// namespace returns the functions and plans of a namespace. They must not be changed.
func (p *Planner) namespace(ctx context.Context, namespace string) (map[string]*api.GPUFunction, []api.InferencePlan, error) {
	functions, plans := &api.GPUFunctionList{}, &api.InferencePlanList{}
	if err := p.client.List(ctx, functions, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, err
	}
	if err := p.client.List(ctx, plans, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, err
	}
	objects := map[string]*api.GPUFunction{}
	for i := range functions.Items {
		objects[functions.Items[i].Name] = &functions.Items[i]
	}
	return objects, plans.Items, nil
}

// responsible returns the plan that decides who serves a function: the oldest of the given plans that is in mode Apply and names the function, or nil
// if there is none.
func responsible(plans []api.InferencePlan, function string) *api.InferencePlan {
	var first *api.InferencePlan
	for i := range plans {
		plan := &plans[i]
		if plan.Spec.Mode != api.Apply || plan.DeletionTimestamp != nil ||
			!slices.ContainsFunc(plan.Spec.Functions, func(f api.PlannedFunction) bool { return f.Name == function }) {
			continue
		}
		if first == nil || cmp.Or(plan.CreationTimestamp.Compare(first.CreationTimestamp.Time), strings.Compare(plan.Name, first.Name)) < 0 {
			first = plan
		}
	}
	return first
}

// account summarises how the groups of a plan are served.
type account struct {
	together, apart planning.Cost // per second, of the groups with a host: with it, and if each function served itself
	late, rate      float64       // requests per second of those groups: those predicted to be late, and all
	guests          int
	problems        []string // why groups have no host
}

// settle finds the host of each group, and enters it in the status of the plan and in wanted.
func settle(object *api.InferencePlan, made *made, objects map[string]*api.GPUFunction, plans []api.InferencePlan, wanted map[string]string) account {
	var all account
	least, model := ruleOf(object.Spec.Replan).Saving, &made.data.models[0]
	for i := range made.status.Groups {
		g := &made.status.Groups[i]
		g.Host = ""
		if g.Applied = alone(g, objects); g.Applied != "" {
			continue
		}
		h, err := hosted{}, othersPlan(object, g, plans)
		switch {
		case g.Mode != api.ModeShare:
			err = notMade(g)
		case err == nil:
			h, err = hostFor(g, object.Spec.Model, objects, &made.data, least)
		}
		if err != nil {
			g.Applied = shortened("no: " + err.Error())
			all.problems = append(all.problems, err.Error())
			continue
		}
		for _, f := range g.Functions {
			if f.Name != h.host {
				wanted[f.Name] = h.host
			}
		}
		lateness := h.group.Misses(model)
		g.Host = h.host
		g.Applied = shortened(fmt.Sprintf("%s serves all on %s, which saves %s of %s/h apart; %s are predicted to be late",
			h.host, h.group.Config, saving(h.apart, h.group.Cost), perHour(h.apart), part(lateness)))
		all.together, all.apart, all.guests = all.together+h.group.Cost, all.apart+h.apart, all.guests+len(g.Functions)-1
		all.late, all.rate = all.late+lateness*h.group.Rate(), all.rate+h.group.Rate()
	}
	return all
}

// alone says how the function of a group of one is served if that follows the plan without a host; otherwise it returns "".
func alone(g *api.PlanGroup, objects map[string]*api.GPUFunction) string {
	switch f := objects[g.Functions[0].Name]; {
	case len(g.Functions) > 1:
		return ""
	case g.Mode == api.ModeShare:
		return "by itself, on the share of its specification"
	case g.Mode == api.ModeCPU && f != nil && f.Spec.Scaling.Autoscaler == api.External:
		return "by itself, on the pods with its label, which gshare does not make"
	}
	return ""
}

// notMade returns why a group whose mode needs pods that gshare does not make has no host.
func notMade(g *api.PlanGroup) error {
	if g.Mode == api.ModeCPU && len(g.Functions) == 1 {
		return fmt.Errorf("gshare makes no pods in mode CPU: want scaling.autoscaler External for %s, and pods of yours with its label, %dm of CPU and %s of memory",
			g.Functions[0].Name, g.MilliCPU, g.Memory)
	}
	return fmt.Errorf("gshare makes no pods in mode %s", g.Mode)
}

// othersPlan returns an error if another plan, or none, decides who serves some function of a group.
func othersPlan(object *api.InferencePlan, g *api.PlanGroup, plans []api.InferencePlan) error {
	for _, f := range g.Functions {
		if by := responsible(plans, f.Name); by == nil || by.Name != object.Name {
			if by == nil {
				return fmt.Errorf("%s is in no plan any more", f.Name) // according to the cache, which may be older or newer than the plan
			}
			return fmt.Errorf("%s is in the InferencePlan %s, which is older", f.Name, by.Name)
		}
	}
	return nil
}

// conclude sets the condition Applied, with the steps to be made now and the reasons why others have to wait.
func (a *account) conclude(object *api.InferencePlan, status *api.InferencePlanStatus, next []step, waits map[string]string) {
	switch {
	case len(a.problems) > 0:
		text := a.problems[0]
		if n := len(a.problems) - 1; n > 0 {
			text = fmt.Sprintf("%s; and %d more, see status.groups", text, n)
		}
		setApplied(object, status, metav1.ConditionFalse, api.ReasonNotApplied, text)
	case len(next) > 0 || len(waits) > 0:
		var texts []string
		for _, s := range next {
			texts = append(texts, s.String())
		}
		for _, name := range slices.Sorted(maps.Keys(waits)) {
			texts = append(texts, waits[name])
		}
		setApplied(object, status, metav1.ConditionFalse, api.ReasonApplying, strings.Join(texts, "; "))
	case a.guests == 0:
		setApplied(object, status, metav1.ConditionTrue, api.ReasonApplied, "each function serves itself, as the plan says")
	default:
		setApplied(object, status, metav1.ConditionTrue, api.ReasonApplied, fmt.Sprintf(
			"%d of %d functions are served by others, which saves %s of %s %s/h; %s of the requests are predicted to be late",
			a.guests, len(object.Spec.Functions), saving(a.apart, a.together), perHour(a.apart), status.Cost.Currency, part(a.late/max(a.rate, planning.MinRate))))
	}
}

func setApplied(object *api.InferencePlan, status *api.InferencePlanStatus, is metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: api.ConditionApplied, Status: is, Reason: reason, Message: shortened(message), ObservedGeneration: object.Generation,
	})
}

// announce writes an event if some group can no longer be applied. What was applied is told by the events of the functions.
func (p *Planner) announce(object *api.InferencePlan, status *api.InferencePlanStatus) {
	before, now := meta.FindStatusCondition(object.Status.Conditions, api.ConditionApplied), meta.FindStatusCondition(status.Conditions, api.ConditionApplied)
	if now != nil && now.Reason == api.ReasonNotApplied && (before == nil || before.Reason != now.Reason) {
		p.recorder.Eventf(object, nil, v1.EventTypeWarning, eventNotApplied, "Apply", "%s", now.Message)
	}
}

// change makes the given changes, and gives because as the reason in their events.
func (p *Planner) change(ctx context.Context, object *api.InferencePlan, all []change, because string) error {
	for _, c := range all {
		why := "InferencePlan " + object.Name + ": " + because
		if err := serve(ctx, p.client, p.recorder, c, why); err != nil {
			return err
		}
	}
	return nil
}

// serve writes into the status of a function who serves it, and records an event. If the function has changed since it was read, serve does nothing,
// and a later round comes back to it.
func serve(ctx context.Context, c client.Client, recorder events.EventRecorder, to change, why string) error {
	changed := to.function.DeepCopy()
	changed.Status.ServedBy = to.host
	err := c.Status().Patch(ctx, changed, client.MergeFromWithOptions(to.function, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return err
	}
	if to.host == "" {
		recorder.Eventf(to.function, nil, v1.EventTypeNormal, api.EventServedByOwn, "Apply", "%s", shortened("Its own replicas serve its requests again, and no more those of "+to.function.Status.ServedBy+". "+why))
		return nil
	}
	recorder.Eventf(to.function, nil, v1.EventTypeNormal, api.EventServedBy, "Apply", "%s", shortened("The replicas of "+to.host+" serve its requests. "+why))
	return nil
}
