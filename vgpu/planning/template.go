package planning

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Template is a partition of a model into stages, which serves all SLOs.
type Template struct {
	Cuts    []int // layer after the last of each stage, ascending; the last is the number of layers
	Workers []int // of each stage
	Latency profile.Seconds
	Cost    Cost        // of a request, at the reference size
	Memory  share.Bytes // that the largest function needs (PA-67)
}

// Templates holds the three partitions among which Cut decides for a model.
type Templates struct {
	Whole   Template // not cut: one function (may need more memory than one has)
	Fastest Template // as Gillis cuts: least latency (PA-32, eq. 4.15), then least cost
	Chosen  Template // at most Slack slower, and never dearer
}

// Cut returns the templates (partitions into stages) of a model. Among those nearly as fast as the fastest, Chosen saves the most latency
// per unit of cost compared with the whole model in one function (PAMBA, eq. 4.16). Templates that are faster and no dearer than the
// whole model are preferred, the fastest first. If none saves the fraction Gain of the whole model's latency, Chosen is the whole model
// if it fits a function and is no dearer than the fastest template, otherwise the fastest template. Errors are *share.FieldError.
func Cut(c Chain, terms CutParameters) (Templates, error) {
	if err := cmp.Or(c.Validate(), terms.Prices.Validate([]Mode{Partitioned}), terms.Platform.Validate(), terms.Validate()); err != nil {
		return Templates{}, err
	}
	k := newCutter(c, terms)
	whole, fits := k.wholeModel()
	all := k.candidates()
	if len(all) == 0 {
		return Templates{}, share.Invalid("layers", "no cut into %d stages keeps every function within its memory and time", terms.MaxStages)
	}
	t := Templates{Whole: whole, Fastest: all[0]}
	worth := slices.DeleteFunc(slices.Clone(all), func(p Template) bool {
		return whole.Latency-p.Latency < profile.Seconds(terms.Gain)*whole.Latency
	})
	switch {
	case len(worth) > 0:
		t.Chosen = chooseTemplate(worth, whole)
	case fits && whole.Cost <= t.Fastest.Cost:
		t.Chosen = whole
	default:
		t.Chosen = all[0]
	}
	return t, nil
}

// chooseTemplate returns the template that Cut prefers. The candidates are sorted by latency, then cost.
func chooseTemplate(candidates []Template, whole Template) Template {
	for _, p := range candidates {
		if p.Cost <= whole.Cost { // P12
			return p
		}
	}
	return slices.MaxFunc(candidates, func(a, b Template) int {
		return cmp.Compare(score(a, whole), score(b, whole))
	})
}

// score returns the latency that a template saves per unit of additional cost, compared with the whole model (PAMBA, eq. 4.16, without
// its epsilon). The template must cost more than the whole model.
func score(p, whole Template) float64 {
	return float64(whole.Latency-p.Latency) / float64(p.Cost-whole.Cost)
}
