package profiles

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/profiler"
	"github.com/gshare-dev/gshare/serving/rules/profile/search"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// plan is what a profile asks for, completed with defaults.
type plan struct {
	hash      string // of everything on which it depends whether trials can be compared
	template  v1.PodTemplateSpec
	protocol  api.Protocol
	request   profiler.Request
	body      *api.BodyReference // body of the request, or nil
	load      profiler.Load
	search    api.ProfileSearch
	maxTrials int
	progress  *profiler.Progress // for a training, which answers no requests; nil for a server
}

// Defaults of a search. The objective is the one that gshare serve applies.
const (
	defaultStep      = 10
	defaultOIPBatch  = 32
	defaultMaxTrials = 60
	objective        = 0.99
)

// planOf returns the plan of a profile. f is the profile's function, or nil if the profile has a template. The error is a *share.FieldError if the
// profile asks for something that cannot be measured.
func planOf(p *api.GPUProfile, f *api.GPUFunction) (*plan, error) {
	if err := checkTraining(p); err != nil {
		return nil, err
	}
	if f == nil {
		f = &api.GPUFunction{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, Spec: api.GPUFunctionSpec{
			SLO: sloOf(p), Protocol: p.Spec.Protocol, Template: p.Spec.Template, Scaling: api.Scaling{Concurrency: p.Spec.Concurrency},
		}}
	} else if f.External() {
		return nil, share.Invalid("spec.functionRef", "the pods of %s are those of another autoscaler: write a template instead", f.Name)
	} else if s := f.Spec.Resources.Share; s != nil && s.Count() > 1 {
		return nil, share.Invalid("spec.functionRef", "%s has %d GPUs for each replica, and only shares of one GPU are measured", f.Name, s.Count())
	}
	f = f.DeepCopy()
	f.Spec.Resources.Share, f.Spec.ProfileRef, f.Status.Profiled = nil, nil, nil // the trials use other shares and batches
	f, err := f.CompleteForCluster(share.MiB)
	if err != nil {
		return nil, err
	}
	made := &plan{template: f.Spec.Template, protocol: f.Spec.Protocol, search: p.Spec.Search}
	if training := p.Spec.Training; training != nil {
		made.progress = &profiler.Progress{Length: cmp.Or(training.Steady.Value(), defaultSteady)}
	}
	made.maxTrials = cmp.Or(made.search.MaxTrials, defaultMaxTrials)
	made.search.MaxTrials = 0 // not part of the hash: with more trials allowed, the present ones continue
	made.search.Strategy = cmp.Or(made.search.Strategy, api.HybridGrowth)
	if made.search.MaxBatch, err = batchOf(made.search, f); err != nil {
		return nil, err
	}
	request := &p.Spec.Request
	if equality.Semantic.DeepEqual(*request, api.ProfileRequest{}) && f.Spec.Request != nil {
		request = f.Spec.Request
	}
	made.body = request.BodyFrom
	if made.request, err = profiler.RequestOf(request, f, bodyFolder); err != nil {
		return nil, err
	}
	if err := made.request.CheckLength(); err != nil {
		return nil, err
	}
	slo := f.Spec.SLO.Latency.Value()
	made.load = profiler.Load{SLO: slo, Objective: objective, Bound: slo, Concurrency: *f.Spec.Scaling.Concurrency, Seed: 1}
	if made.search.Strategy != api.Grid {
		made.search.Step = cmp.Or(made.search.Step, defaultStep)
	}
	if made.search.Strategy == api.HybridGrowth {
		made.load.Bound = slo / 2
	}
	if _, _, err := made.strategy("").Next(nil); err != nil {
		return nil, err
	}
	made.hash = hashOf(16, struct {
		Template    v1.PodTemplateSpec
		Protocol    api.Protocol
		Request     profiler.Request
		Load        profiler.Load
		Search      api.ProfileSearch
		Accelerator string
		Progress    *profiler.Progress `json:",omitempty"`
	}{made.template, made.protocol, made.request, made.load, made.search, p.Spec.Accelerator, made.progress})
	return made, nil
}

// batchOf returns the largest batch to try.
func batchOf(s api.ProfileSearch, f *api.GPUFunction) (int, error) {
	oip := f.Spec.Protocol == api.OIP
	switch {
	case s.MaxBatch > 1 && !oip:
		return 0, share.Invalid("spec.search.maxBatch", "more than 1 needs protocol OIP")
	case s.MaxBatch > 0:
		return s.MaxBatch, nil
	case oip && f.Spec.Batching.MaxBatch == 1 && s.Strategy == api.HybridGrowth:
		return defaultOIPBatch, nil
	}
	return f.Spec.Batching.MaxBatch, nil
}

// strategy returns the search for the given GPU model.
func (p *plan) strategy(model string) search.Strategy {
	switch p.search.Strategy {
	case api.HybridGrowth:
		return search.Growth{SLO: p.load.SLO, Step: perMille(p.search.Step), MaxBatch: p.search.MaxBatch, Device: model}
	case api.Bisection:
		return search.Bisection{Step: perMille(p.search.Step), Batch: p.search.MaxBatch, Device: model}
	}
	grid := search.FaSTGrid(model, p.search.MaxBatch)
	if len(p.search.SM) > 0 {
		grid.SM = perMilles(p.search.SM)
	}
	if len(p.search.Quota) > 0 {
		grid.Quota = perMilles(p.search.Quota)
	}
	return grid
}

func perMille(percent int64) share.PerMille { return share.PerMille(10 * percent) }

func percent(p share.PerMille) int64 { return int64(p) / 10 }

func perMilles(percents []int64) []share.PerMille {
	var all []share.PerMille
	for _, p := range percents {
		all = append(all, perMille(p))
	}
	return all
}

// hashOf returns a hash of a value that can be written as JSON. It has the given number of characters, at most 51, and can be part of a name.
func hashOf(length int, value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // cannot happen: the value came from JSON
	}
	sum := sha256.Sum256(text)
	return strings.ToLower(base32.HexEncoding.EncodeToString(sum[:])[:length])
}

// settingText returns a setting as text for users.
func settingText(sm, quota int64, batch int) string {
	return fmt.Sprintf("sm %d%%, quota %d%%, batch %d", sm, quota, batch)
}
