package planning

import (
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Layer is a layer of a model, or a block of layers that is never split over stages.
type Layer struct {
	Name    string          `json:"name"`
	Work    profile.Seconds `json:"work"`    // on one function of the reference size
	Weights share.Bytes     `json:"weights"` // bytes
	Output  share.Bytes     `json:"output"`  // bytes, for the next layer
	// Halo is the part of the layer's input, from 0 to 1, that a worker needs beyond its own piece: two rows of 56, say,
	// for a 3 x 3 convolution on a side of 56. Layers before it in the same stage compute that part again on each worker.
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
