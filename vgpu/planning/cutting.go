package planning

import (
	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// CutParameters holds the resources, prices and limits by which Cut splits a model into stages.
type CutParameters struct {
	Prices   Book
	Platform Platform

	CPU        profile.MilliCPU // reference size: of the functions of all stages, and of the whole model's
	Master     profile.Master
	MaxStages  int
	MaxWorkers int             // of a stage
	Call       profile.Seconds // to start a worker; the master starts those of a stage one after another
	Bandwidth  float64         // bytes a second, between the master and all workers of a stage together
	MaxTime    profile.Seconds // that a function may run
	// Gain is δ: the part of the whole model's latency that a template must save (PA-36).
	Gain float64
	// Slack is how much slower than the fastest template another may be, as a part.
	Slack float64
}

// DefaultCutParameters returns default parameters for splitting a model into stages, with the given prices and platform.
func DefaultCutParameters(prices Book, platform Platform) CutParameters {
	return CutParameters{ // P13
		Prices: prices, Platform: platform, CPU: 2000, Master: profile.Master{CPU: 100, MemoryMiB: 128},
		MaxStages: 8, MaxWorkers: 16, Call: 0.005, Bandwidth: 100e6, MaxTime: 600, Gain: 0.05, Slack: 0.05,
	}
}

// Validate returns a *share.FieldError that names the first parameter out of bounds, or nil.
func (c *CutParameters) Validate() error {
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
