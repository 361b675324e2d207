package planning

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Template is how a model is cut into stages (PA-30), once for all deadlines (PA-37).
type Template struct {
	Cuts    []int // layer after the last of each stage, ascending; the last is the number of layers
	Workers []int // of each stage
	Latency profile.Seconds
	Cost    Cost        // of a request, at the reference size
	Memory  share.Bytes // that the largest function needs (PA-67)
}

// Templates are what a model can be cut into.
type Templates struct {
	Whole   Template // not cut: one function (may need more memory than one has)
	Fastest Template // as Gillis cuts: least latency (PA-32, eq. 4.15), then least cost
	Chosen  Template // at most Slack slower, and never dearer
}

// Cut finds templates. Among those nearly as fast as the fastest, it chooses by what each unit of cost saves in latency,
// against the whole model in one function (PA-35, eq. 4.16). What is faster than the whole and no dearer needs no such
// weighing: of these the fastest is chosen (P12). If none saves Gain of the whole's latency, the model is best not cut, and
// the chosen template is the whole, if it fits and is no dearer than the fastest, else that. Errors are *share.FieldError.
func Cut(c Chain, terms Cutting) (Templates, error) {
	if err := cmp.Or(c.Validate(), terms.Prices.Validate([]Mode{Partitioned}), terms.Platform.Validate(), terms.Validate()); err != nil {
		return Templates{}, err
	}
	k := newCutter(c, terms)
	whole, fits := k.whole()
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
		t.Chosen = chosen(worth, whole)
	case fits && whole.Cost <= t.Fastest.Cost:
		t.Chosen = whole
	default:
		t.Chosen = all[0]
	}
	return t, nil
}

// chosen takes candidates by latency, those of the same by cost.
func chosen(candidates []Template, whole Template) Template {
	for _, p := range candidates {
		if p.Cost <= whole.Cost {
			return p
		}
	}
	return slices.MaxFunc(candidates, func(a, b Template) int {
		return cmp.Compare(score(a, whole), score(b, whole))
	})
}

// score is eq. 4.16 without its epsilon: it is only asked of templates that cost more than the whole (P12).
func score(p, whole Template) float64 {
	return float64(whole.Latency-p.Latency) / float64(p.Cost-whole.Cost)
}
