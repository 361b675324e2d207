package planning

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Template is a partition of a model into stages. One template is used for all SLOs.
type Template struct {
	Cuts    []int // for each stage, the index after its last layer, ascending; the last one is the number of layers
	Workers []int // of each stage
	Latency profile.Seconds
	Cost    Cost        // of a request, at the reference size
	Memory  share.Bytes // needed by the largest function
}

// Templates holds the partition of a model into stages that FindTemplates chose, and two others to compare it with.
type Templates struct {
	Whole   Template // not split: one function, even if it needs more memory than a function can have
	Fastest Template // least latency, as Gillis splits models (PAMBA, eq. 4.15), then least cost
	Chosen  Template // at most CutParameters.Slack slower than Fastest
}

// FindTemplates searches for the best templates (partitions into stages) of a model. Among those nearly as fast as the fastest, Chosen
// saves the most latency per unit of cost compared with the whole model in one function (PAMBA, eq. 4.16). Templates that are faster and
// no dearer than the whole model are preferred, the fastest first. If none saves the fraction Gain of the whole model's latency, Chosen
// is the whole model if that fits a function and is no dearer than the fastest template, and otherwise the fastest template. Errors are
// *share.FieldError.
func FindTemplates(c Chain, terms TemplateParameters) (Templates, error) {
	if err := cmp.Or(c.Validate(), terms.Prices.Validate([]Mode{Partitioned}), terms.Platform.Validate(), terms.Validate()); err != nil {
		return Templates{}, err
	}
	k := newStageTable(c, terms)
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

// chooseTemplate returns the template that FindTemplates prefers. The candidates are sorted by latency, then cost.
func chooseTemplate(candidates []Template, whole Template) Template {
	for _, p := range candidates {
		if p.Cost <= whole.Cost { // P12
			return p
		}
	}
	return slices.MaxFunc(candidates, func(a, b Template) int {
		return cmp.Compare(savingPerCost(a, whole), savingPerCost(b, whole))
	})
}

// savingPerCost returns the latency that a template saves per unit of additional cost, compared with the whole model (PAMBA, eq. 4.16,
// without its epsilon). The template must cost more than the whole model.
func savingPerCost(p, whole Template) float64 {
	return float64(whole.Latency-p.Latency) / float64(p.Cost-whole.Cost)
}

// Layer is a layer of a model, or a block of layers that is never split over stages.
type Layer struct {
	Name    string          `json:"name"`
	Work    profile.Seconds `json:"work"`    // on one function of the reference size
	Weights share.Bytes     `json:"weights"` // bytes
	Output  share.Bytes     `json:"output"`  // bytes, for the next layer
	// Halo is the fraction of the layer's input, from 0 to 1, that a worker needs beyond its own piece: for a 3 x 3
	// convolution on an input with a side of 56, for example, two rows of 56. The layers before it in the same stage
	// compute this part again on each worker.
	Halo float64 `json:"halo,omitempty"`
}

// Chain is a model as a sequence of layers, for splitting it into stages.
type Chain struct {
	Input  share.Bytes `json:"input"` // bytes
	Layers []Layer     `json:"layers"`
}

// Bounds of a chain.
const (
	maxLayers = 200
	maxWork   = 1e6
)

// Validate returns a *share.FieldError that names the first invalid field of the chain, or nil.
func (c *Chain) Validate() error {
	switch {
	case len(c.Layers) == 0 || len(c.Layers) > maxLayers:
		return share.Invalid("layers", "%d of them; want 1 to %d", len(c.Layers), maxLayers)
	case c.Input < 0 || c.Input > share.MaxMemory:
		return share.Invalid("input", "%d is outside 0 to %d bytes", c.Input, share.MaxMemory)
	}
	for i, l := range c.Layers {
		if err := l.validate(); err != nil {
			return profile.WithinField(fmt.Sprintf("layers[%d]", i), err)
		}
	}
	return nil
}

func (l *Layer) validate() error {
	const most = share.MaxMemory / maxLayers // so that sums do not overflow
	switch {
	case !(l.Work > 0 && l.Work <= maxWork): // NaN too
		return share.Invalid("work", "%v is not above 0 and at most %g s", float64(l.Work), float64(maxWork))
	case l.Weights < 0 || l.Weights > most:
		return share.Invalid("weights", "%d is outside 0 to %d bytes", l.Weights, most)
	case l.Output < 0 || l.Output > most:
		return share.Invalid("output", "%d is outside 0 to %d bytes", l.Output, most)
	case !(l.Halo >= 0 && l.Halo <= 1):
		return share.Invalid("halo", "%v is outside 0 to 1", l.Halo)
	}
	return nil
}

// TemplateParameters holds the resources, prices and limits for splitting a model into stages.
type TemplateParameters struct {
	Prices   PriceList
	Platform Platform

	CPU        profile.MilliCPU // reference size, of the functions of all stages and of the whole model
	Master     profile.Master
	MaxStages  int
	MaxWorkers int             // of a stage
	Call       profile.Seconds // to start a worker; the master starts those of a stage one after another
	Bandwidth  float64         // bytes per second, between the master and all workers of a stage together
	MaxTime    profile.Seconds // that a function may run
	// Gain is δ: the fraction of the whole model's latency that a template must save.
	Gain float64
	// Slack is how much slower than the fastest template another may be, as a fraction.
	Slack float64
}

// DefaultTemplateParameters returns default parameters for splitting a model into stages, with the given prices and platform.
func DefaultTemplateParameters(prices PriceList, platform Platform) TemplateParameters {
	return TemplateParameters{ // P13
		Prices: prices, Platform: platform, CPU: 2000, Master: profile.Master{CPU: 100, MemoryMiB: 128},
		MaxStages: 8, MaxWorkers: 16, Call: 0.005, Bandwidth: 100e6, MaxTime: 600, Gain: 0.05, Slack: 0.05,
	}
}

// Validate returns a *share.FieldError that names the first parameter out of bounds, or nil.
func (c *TemplateParameters) Validate() error {
	switch {
	case c.CPU < c.Platform.MinCPU || c.CPU > c.Platform.MaxCPU:
		return share.Invalid("milliCPU", "%d is outside %d to %d", c.CPU, c.Platform.MinCPU, c.Platform.MaxCPU)
	case c.MaxStages < 1 || c.MaxStages > 64:
		return share.Invalid("maxStages", "%d is outside 1 to 64", c.MaxStages)
	case c.MaxWorkers < 1 || c.MaxWorkers > 64:
		return share.Invalid("maxWorkers", "%d is outside 1 to 64", c.MaxWorkers)
	case !(c.Call >= 0 && c.Call <= 60):
		return share.Invalid("call", "%v is outside 0 to 60 s", float64(c.Call))
	case !(c.Bandwidth >= 1 && c.Bandwidth <= 1e15):
		return share.Invalid("bandwidth", "%v is outside 1 to 1e+15 bytes a second", c.Bandwidth)
	case !(c.MaxTime > 0 && c.MaxTime <= MaxSLO):
		return share.Invalid("maxTime", "%v is not above 0 and at most %d s", float64(c.MaxTime), MaxSLO)
	case !(c.Gain >= 0 && c.Gain < 1):
		return share.Invalid("gain", "%v is outside 0 to 1", c.Gain)
	case !(c.Slack >= 0 && c.Slack <= 100):
		return share.Invalid("slack", "%v is outside 0 to 100", c.Slack)
	}
	return nil
}
