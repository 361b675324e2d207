package planning

import (
	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Frontier returns the cheapest configuration of one application of a model for each SLO (first index) and rate (PA-63). A
// group without a mode is infeasible.
func Frontier(in Input, model string, slos []profile.Seconds, rates []float64) ([][]Group, error) {
	if err := in.Validate(); err != nil {
		return nil, err
	}
	if in.model(model) == nil {
		return nil, share.Invalid("model", "there is no profile of %.64q", model)
	}
	o := newOptions(in.model(model), &in, in.Modes)
	frontier := make([][]Group, len(slos))
	for i, slo := range slos {
		for _, rate := range rates {
			a := Application{Name: "one", Model: model, SLO: slo, Rate: rate}
			if err := a.validate(); err != nil {
				return nil, err
			}
			own := []Application{a}
			frontier[i] = append(frontier[i], newGroup(own, o.provision(demandOf(own))))
		}
	}
	return frontier, nil
}
