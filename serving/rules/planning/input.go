// Package planning minimises the cost of serving applications with deadlines: it decides which applications share a deployment,
// and for each deployment the mode, the resources and the batch size. It implements PAMBA's planner with the corrections that
// docs/glossary.md lists, and HarmonyBatch's as a baseline.
package planning

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Input holds all parameters of a plan. The same input, in any order, yields the same plan.
type Input struct {
	Applications []Application
	Models       []profile.Model
	Prices       PriceList
	Platform     Platform
	Modes        []Mode // that may be used

	objective *Objective // set by Expected
}

// Validate returns a *share.FieldError that names the path of the first invalid field, or nil.
func (in *Input) Validate() error {
	if len(in.Applications) == 0 || len(in.Applications) > maxApplications {
		return share.Invalid("applications", "%d of them; want 1 to %d", len(in.Applications), maxApplications)
	}
	if len(in.Modes) == 0 {
		return share.Invalid("modes", "none is allowed")
	}
	for _, m := range in.Modes {
		if !contains(Modes(), m) {
			return share.Invalid("modes", "%.64q is none of %v", string(m), Modes())
		}
	}
	return cmp.Or(in.validModels(), in.validApplications(), profile.WithinField("prices", in.Prices.Validate(in.usedModes())), profile.WithinField("platform", in.Platform.Validate()))
}

func (in *Input) validModels() error {
	for i := range in.Models {
		path := fmt.Sprintf("models[%d]", i)
		if err := in.Models[i].Validate(); err != nil {
			return profile.WithinField(path, err)
		}
		if err := in.validSizes(&in.Models[i]); err != nil {
			return profile.WithinField(path, err)
		}
		if in.model(in.Models[i].Name) != &in.Models[i] {
			return share.Invalid(path+".name", "%.64q is there twice", in.Models[i].Name)
		}
	}
	return nil
}

// validSizes returns an error if a model has so many configurations that planning with them would take all memory, or minutes. Without this limit,
// whoever writes a profile could block a planner that also serves others.
func (in *Input) validSizes(m *profile.Model) error {
	cpus, quotas := in.Platform.sizes()
	for _, part := range []struct {
		field string
		n     int
		most  int
	}{
		{"cpu.mean", m.CPU.Batches() * cpus, maxConfigurations},
		{"gpu.cardGB, maxBatch", m.GPU.Sizes(), maxConfigurations},
		{"share.curves, maxBatch", m.Share.Sizes() * quotas, maxConfigurations},
		{"partitioned.stages", m.Partitioned.Sizes() * (cpus + len(masterWeights)*p99Steps), maxPartitions},
	} {
		if part.n > part.most {
			return share.Invalid(part.field, "%d configurations with the platform's sizes; want at most %d", part.n, part.most)
		}
	}
	return nil
}

func (in *Input) validApplications() error {
	names := map[string]bool{}
	for i := range in.Applications {
		a, path := &in.Applications[i], fmt.Sprintf("applications[%d]", i)
		if err := a.validate(); err != nil {
			return profile.WithinField(path, err)
		}
		if names[a.Name] {
			return share.Invalid(path+".name", "%.64q is there twice", a.Name)
		}
		names[a.Name] = true
		if in.model(a.Model) == nil {
			return share.Invalid(path+".model", "there is no profile of %.64q", a.Model)
		}
	}
	return nil
}

func (in *Input) model(name string) *profile.Model {
	for i := range in.Models {
		if in.Models[i].Name == name {
			return &in.Models[i]
		}
	}
	return nil
}

// usedModes returns the allowed execution modes for which some model has a profile. Only these need prices.
func (in *Input) usedModes() []Mode {
	var used []Mode
	for _, mode := range in.Modes {
		for i := range in.Models {
			if has(&in.Models[i], mode) && !contains(used, mode) {
				used = append(used, mode)
			}
		}
	}
	return used
}

func contains(modes []Mode, m Mode) bool { return slices.Contains(modes, m) }

// Application is a stream of inference requests for one model, with a mean arrival rate and a latency objective.
type Application struct {
	Name  string          `json:"name"`
	Model string          `json:"model"`
	SLO   profile.Seconds `json:"slo"`  // from arrival to answer, of the p99
	Rate  float64         `json:"rate"` // requests a second, mean
}

// Bounds of an Input.
const (
	MaxSLO  = 86400 // seconds: a day
	MinRate = 1e-6  // a second: one in eleven days
	MaxRate = 1e7   // a second

	maxApplications   = 2000
	maxConfigurations = 200_000   // of one model in one mode
	maxPartitions     = 1_000_000 // limit both on the worker sizes that are compared for one model and on those in the resulting configurations
)

func (a *Application) validate() error {
	switch {
	case a.Name == "":
		return share.Invalid("name", "is empty")
	case !(a.SLO > 0 && a.SLO <= MaxSLO): // NaN too
		return share.Invalid("slo", "%v s is not above 0 and at most %d s", float64(a.SLO), MaxSLO)
	case !(a.Rate >= MinRate && a.Rate <= MaxRate):
		return share.Invalid("rate", "%v a second is outside %g to %g", a.Rate, MinRate, float64(MaxRate))
	}
	return nil
}

// compareUrgency orders applications by SLO, then rate, then name.
func compareUrgency(a, b Application) int {
	return cmp.Or(cmp.Compare(a.SLO, b.SLO), cmp.Compare(a.Rate, b.Rate), cmp.Compare(a.Name, b.Name)) // P17
}
