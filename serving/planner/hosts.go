package planner

import (
	"fmt"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/rules/planning"
	"github.com/gshare-dev/gshare/serving/rules/profile"
)

// hosted is how a host serves a group, and what that costs according to the profile and the prices.
type hosted struct {
	host  string
	group planning.Group // on the host's share
	apart planning.Cost  // per second, if each function served itself
}

// hostFor returns the function that should serve a group of several functions in mode Share, or an error that says why there is none. objects holds
// the functions of the namespace. least is the fraction of the cost that a function must save to become the host.
//
// The host is one of the functions with the tightest objective of the group: what its replicas answer in time is in time for the others, and it
// scales with their load too. Its specification belongs to the user: its share, batch and bounds must suffice as they are; if they do not, the error
// says what to write.
func hostFor(status *api.PlanGroup, model string, objects map[string]*api.GPUFunction, d *data, least float64) (hosted, error) {
	group := presentGroups([]api.PlanGroup{*status}, model)[0]
	var candidates []*api.GPUFunction
	serves := map[string]bool{}
	for _, a := range group.Applications {
		f := objects[a.Name]
		if f == nil {
			return hosted{}, fmt.Errorf("there is no GPUFunction %s", a.Name)
		}
		serves[f.Status.ServedBy] = true
		if a.SLO <= group.Applications[0].SLO { // the first one has the tightest SLO
			candidates = append(candidates, f)
		}
	}
	slices.SortStableFunc(candidates, func(a, b *api.GPUFunction) int {
		switch {
		case serves[a.Name] == serves[b.Name]:
			return 0
		case serves[a.Name]: // the present host stays, if it can
			return -1
		}
		return 1
	})
	var first error
	for _, host := range candidates {
		err, saves := mayGrow(host), least
		if serves[host.Name] {
			err, saves = nil, 0 // the present host stays as long as it saves anything
		}
		var h hosted
		if err == nil {
			h, err = serveWith(host, status, &group, objects, d, saves)
		}
		if err == nil {
			return h, nil
		}
		if first == nil {
			first = err
		}
	}
	return hosted{}, first
}

// serveWith returns how a host would serve a group, or an error that says why it cannot.
func serveWith(host *api.GPUFunction, status *api.PlanGroup, group *planning.Group, objects map[string]*api.GPUFunction, d *data, least float64) (hosted, error) {
	for _, a := range group.Applications {
		if a.Name != host.Name {
			if err := mayServe(host, objects[a.Name]); err != nil {
				return hosted{}, err
			}
		}
	}
	config, f, err := configOf(host, group.Config.Batch)
	if err != nil {
		return hosted{}, err
	}
	kept, ok := keep(d, config, group.Applications)
	if !ok {
		config.Instances = 1
		return hosted{}, fmt.Errorf("%s has %s, in batches of up to %d, which does not keep the group's objectives by the profile: want resources.share {sm: %d, quota: %d, memory: %s} and batching.maxBatch %d, as the plan",
			host.Name, config, config.Batch, *status.Share.SM, *status.Share.Quota, status.Share.Memory, status.Batch)
	}
	needs := kept.Config.Instances
	if rate := f.Spec.Scaling.RequestsPerSecond; rate > 0 {
		needs = max(needs, int(math.Ceil(min(group.Rate()/rate, maxReplicas))))
	}
	if limit := *f.Spec.Scaling.MaxReplicas; needs > limit {
		return hosted{}, fmt.Errorf("%s needs %d replicas for the group: want scaling.maxReplicas of at least that, it is %d", host.Name, needs, limit)
	}
	apart := planning.Cost(0)
	for _, a := range group.Applications {
		one, ok := keepAlone(objects[a.Name], a, config, d)
		if !ok {
			return hosted{}, fmt.Errorf("%s by itself does not keep its objective by the profile, so that what %s would save is not known", a.Name, host.Name)
		}
		apart += one.Cost
	}
	if saved := 1 - float64(kept.Cost/apart); saved < least || saved <= 0 {
		return hosted{}, fmt.Errorf("%s on its %s would save %s of what the functions of the group cost apart on theirs: want more than 0%%, and %.0f%% at first", host.Name, kept.Config, saving(apart, kept.Cost), 100*least)
	}
	return hosted{host.Name, kept, apart}, nil
}

// maxReplicas limits numbers of replicas, far above what a function may have.
const maxReplicas = 1e6

// mayServe returns why a function may not serve another one.
func mayServe(host, guest *api.GPUFunction) error {
	alone := *host
	alone.Status.ServedBy = "" // as if the host already served itself: a later step sees to that
	switch {
	case alone.MayServe(guest):
		return nil
	case host.DeletionTimestamp != nil:
		return fmt.Errorf("%s is being deleted", host.Name)
	case host.External() || guest.External():
		return fmt.Errorf("%s and %s: want scaling.autoscaler Native of both", host.Name, guest.Name)
	case host.GPUs() > 1 || guest.GPUs() > 1:
		return fmt.Errorf("%s and %s: want resources.share.gpus 1 of both", host.Name, guest.Name)
	case host.Spec.Protocol != guest.Spec.Protocol:
		return fmt.Errorf("%s and %s have the protocols %s and %s", host.Name, guest.Name, host.Spec.Protocol, guest.Spec.Protocol)
	case !equality.Semantic.DeepEqual(host.Spec.Template, guest.Spec.Template):
		return fmt.Errorf("%s and %s have different templates", host.Name, guest.Name)
	}
	return fmt.Errorf("%s may not serve %s", host.Name, guest.Name)
}

// mayGrow returns why a function cannot have more replicas now.
func mayGrow(f *api.GPUFunction) error {
	if c := meta.FindStatusCondition(f.Status.Conditions, api.ConditionQuotaExceeded); c != nil && c.Status == metav1.ConditionTrue {
		return fmt.Errorf("%s may have no more replicas: %s", f.Name, c.Message)
	}
	return nil
}

// configOf returns the configuration of a function's replicas, with batches of up to batch, and the function completed with defaults.
func configOf(f *api.GPUFunction, batch int) (planning.Config, *api.GPUFunction, error) {
	if f.GPUs() > 1 {
		return planning.Config{}, nil, fmt.Errorf("%s has %d GPUs for each replica, and only shares of one GPU are planned", f.Name, f.GPUs())
	}
	if f.Unprofiled() {
		return planning.Config{}, nil, fmt.Errorf("%s has a whole GPU for each replica: want resources.share, or a profile that is complete", f.Name)
	}
	complete, err := f.CompleteForCluster(0)
	if err != nil {
		return planning.Config{}, nil, fmt.Errorf("%s is not valid: %w", f.Name, err)
	}
	s := complete.Share()
	return planning.Config{Mode: planning.Share, Batch: min(batch, complete.Spec.Batching.MaxBatch), SM: s.SMRequest, Quota: s.QuotaRequest, Memory: s.Memory}, complete, nil
}

// keepAlone returns what a function costs if it serves itself: on its own share, or, if the profile does not contain that, on other.
func keepAlone(f *api.GPUFunction, a planning.Application, other planning.Config, d *data) (planning.Group, bool) {
	if own, _, err := configOf(f, other.Batch); err == nil {
		if g, ok := keep(d, own, []planning.Application{a}); ok {
			return g, true
		}
	}
	return keep(d, other, []planning.Application{a})
}

// keep returns a group on a share, with as many instances as it needs. It returns false if the profile does not contain the share or if some
// objective is not met.
func keep(d *data, config planning.Config, of []planning.Application) (planning.Group, bool) {
	model := profile.Model{Name: d.models[0].Name, Share: d.models[0].Share} // shares do not need the others, which validation would check
	in := planning.Input{Applications: of, Models: []profile.Model{model}, Prices: d.prices, Platform: d.terms, Modes: []planning.Mode{planning.Share}}
	plan, ok, err := planning.Keep(in, []planning.Group{{Config: config, Applications: of}})
	if err != nil || !ok {
		return planning.Group{}, false
	}
	return plan.Groups[0], true
}
