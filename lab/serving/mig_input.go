package serving

import (
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/pipeline"
	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// MIG is a set of GPUs of one model with fixed MIG instances.
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
