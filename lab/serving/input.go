package serving

import (
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/arrival"
	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/serving/rules/planning"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Input is the system to simulate: functions, hardware, prices and requests. It is the same for all policies.
type Input struct {
	Functions []Function
	GPUs      int         // whole GPUs, to be shared
	GPUMemory share.Bytes // of each
	MIG       MIG
	Models    []profile.Model
	Prices    planning.PriceList
	Platform  planning.Platform

	Arrivals []arrival.Arrival
	Until    time.Duration // when the trace ends
	Seed     uint64        // of random execution times, for models whose times vary

	// Used, if set, is called at the end of each second with the use of MIG instances during it.
	Used func(at time.Duration, u MIGUse)
	// Decided, if set, is called with each decision of the autoscalers of policy replicas, and the time at which it was made.
	Decided func(at time.Duration, function string, d scaling.Decision)
}

// Function is one deployed function. It can run on the hardware for which its Points, Graph or Model hold measurements.
type Function struct {
	Name string
	SLO  time.Duration

	LoadCold, LoadWarm time.Duration // load times of an instance, from storage and from host memory
	Memory             share.Bytes   // of an instance on a share

	Points []profile.Point    // of the whole model on shares
	Graph  *pipeline.Function // of its components on MIG instances
	Model  string             // key in Input.Models, for plans

	Replicas *Replicas // on a cluster
	Turns    *Turns    // on a cluster, of class swap
}

// Maximum values in an Input.
const (
	maxFunctions = 1000
	maxGPUs      = 1024
	maxDuration  = 24 * time.Hour
	maxPoints    = 10_000
)

// Validate returns a *share.FieldError that names the path of the first invalid field, or nil.
func (in *Input) Validate() error {
	switch {
	case len(in.Functions) == 0 || len(in.Functions) > maxFunctions:
		return share.Invalid("functions", "%d of them; want 1 to %d", len(in.Functions), maxFunctions)
	case in.GPUs < 0 || in.GPUs > maxGPUs:
		return share.Invalid("gpus", "%d is outside 0 to %d", in.GPUs, maxGPUs)
	case in.GPUMemory < 0 || in.GPUMemory > share.MaxMemory:
		return share.Invalid("gpuMemory", "%d bytes is outside 0 to %d", in.GPUMemory, share.MaxMemory)
	case in.Until <= 0 || in.Until > maxDuration:
		return share.Invalid("duration", "%v is not above 0 and at most %v", in.Until, maxDuration)
	}
	names := map[string]bool{}
	for i := range in.Functions {
		f, path := &in.Functions[i], fmt.Sprintf("functions[%d]", i)
		if err := f.validate(); err != nil {
			return profile.WithinField(path, err)
		}
		if names[f.Name] {
			return share.Invalid(path+".name", "%.64q is there twice", f.Name)
		}
		names[f.Name] = true
	}
	return in.validateArrivals()
}

func (in *Input) validateArrivals() error {
	last := time.Duration(0)
	for i, a := range in.Arrivals {
		if a.At < last || a.At >= in.Until || a.Function < 0 || int(a.Function) >= len(in.Functions) {
			return share.Invalid(fmt.Sprintf("arrivals[%d]", i), "function %d at %v; want one of %d functions, from %v until %v",
				a.Function, a.At, len(in.Functions), last, in.Until)
		}
		last = a.At
	}
	return nil
}

func (f *Function) validate() error {
	switch {
	case f.Name == "":
		return share.Invalid("name", "is empty")
	case f.SLO <= 0 || f.SLO > time.Hour:
		return share.Invalid("slo", "%v is not above 0 and at most 1h", f.SLO)
	case f.LoadCold < 0 || f.LoadCold > time.Hour:
		return share.Invalid("loadCold", "%v is outside 0 to 1h", f.LoadCold)
	case f.LoadWarm < 0 || f.LoadWarm > f.LoadCold:
		return share.Invalid("loadWarm", "%v is outside 0 to loadCold, %v", f.LoadWarm, f.LoadCold)
	case f.Memory < 0 || f.Memory > share.MaxMemory:
		return share.Invalid("memory", "%d bytes is outside 0 to %d", f.Memory, share.MaxMemory)
	case len(f.Points) > maxPoints:
		return share.Invalid("points", "%d of them; want at most %d", len(f.Points), maxPoints)
	}
	for i := range f.Points {
		if err := validatePoint(&f.Points[i]); err != nil {
			return profile.WithinField(fmt.Sprintf("points[%d]", i), err)
		}
	}
	return nil
}

// validatePoint returns an error unless the measurement is of a whole model and can be used for a latencySurface.
func validatePoint(p *profile.Point) error {
	const most = 1024 // because the simulation evaluates every size up to the largest
	switch {
	case p.Resource.SM == 0 || p.Resource.Quota != share.Whole:
		return share.Invalid("resource", "%d per mille of the SMs for %d of the time; shares here have some SMs and the whole time", p.Resource.SM, p.Resource.Quota)
	case p.Batch > most:
		return share.Invalid("batch", "%d is above %d", p.Batch, most)
	case p.Mean > time.Hour:
		return share.Invalid("mean", "%v is above 1h", p.Mean)
	}
	return p.Validate()
}

// validateShares returns an error if the input lacks what the policies on shared GPUs need.
func (in *Input) validateShares() error {
	switch {
	case in.GPUs == 0:
		return share.Invalid("gpus", "the policy needs GPUs to share")
	case in.Prices.Slice <= 0:
		return share.Invalid("prices.nanoPerSliceSecond", "%d is no price", in.Prices.Slice)
	}
	for i := range in.Functions {
		f, path := &in.Functions[i], fmt.Sprintf("functions[%d]", i)
		if len(f.Points) == 0 {
			return share.Invalid(path+".points", "the policy needs a profile on shares")
		}
		if f.Memory == 0 || f.Memory > in.GPUMemory {
			return share.Invalid(path+".memory", "%d MiB is no part of a GPU with %d", f.Memory/share.MiB, in.GPUMemory/share.MiB)
		}
	}
	return profile.WithinField("prices", in.Prices.Validate(nil))
}

// MIG describes simulated GPUs of one model, each with MIG instances that never change.
type MIG struct {
	Model string     // as package mig names it
	GPUs  [][]string // by GPU, the names of the profiles
}

// validateMIG returns the kinds of slices by the names of their MIG profiles, or an error if the input lacks what the policies on MIG
// instances need.
func (in *Input) validateMIG() (map[string]pipeline.Kind, error) {
	switch {
	case len(in.MIG.GPUs) == 0 || len(in.MIG.GPUs) > maxGPUs:
		return nil, share.Invalid("mig.geometries", "%d of them; the policy needs 1 to %d", len(in.MIG.GPUs), maxGPUs)
	case in.Prices.Slice <= 0:
		return nil, share.Invalid("prices.nanoPerSliceSecond", "%d is no price", in.Prices.Slice)
	}
	model, err := mig.ModelNamed(in.MIG.Model)
	if err != nil {
		return nil, share.Invalid("mig.model", "%v", err)
	}
	kinds := map[string]pipeline.Kind{}
	for g, names := range in.MIG.GPUs {
		if err := in.validateGPU(model, names, kinds); err != nil {
			return nil, profile.WithinField(fmt.Sprintf("mig.geometries: GPU %d", g), err)
		}
	}
	for i := range in.Functions {
		if in.Functions[i].Graph == nil {
			return nil, share.Invalid(fmt.Sprintf("functions[%d].graph", i), "the policy needs the function's components on MIG instances")
		}
	}
	return kinds, nil
}

// validateGPU returns an error if the MIG profiles cannot exist together on one GPU. It adds their kinds of slices to kinds.
func (in *Input) validateGPU(model *mig.Model, names []string, kinds map[string]pipeline.Kind) error {
	var profiles []*mig.Profile
	for i, name := range names {
		p, ok := model.Profile(name)
		if !ok {
			return share.Invalid(fmt.Sprintf("[%d]", i), "%.64q is no profile of %s", name, model.Name)
		}
		profiles, kinds[name] = append(profiles, p), pipeline.KindOf(p)
	}
	if len(profiles) == 0 || len(profiles) > model.Compute || !fitTogether(mig.Layout{}, profiles) {
		return share.Invalid("profiles", "%v is no way to cut a %s", names, model.Name)
	}
	return nil
}

func fitTogether(l mig.Layout, profiles []*mig.Profile) bool {
	if len(profiles) == 0 {
		return true
	}
	for _, start := range profiles[0].Starts {
		if i := (mig.Instance{Profile: profiles[0], Start: start}); l.Fits(i) && fitTogether(l.With(i), profiles[1:]) {
			return true
		}
	}
	return false
}
