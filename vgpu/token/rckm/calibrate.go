package rckm

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

const (
	remembered = 64 // samples
	sampled    = 4  // ticks of device time that make a sample
)

// calibration measures what the slice is worth for one member (D19, DI-69). Blocks differ from kernel to kernel, so it counts them
// against the time that they keep the device busy: whatever holds the member back shows in neither. Kernels that fill
// less than its cap count as if they filled it.
type calibration struct {
	blocks         int64
	device, passed time.Duration // of the open sample
	rates          []int64       // blocks in a tick of device time, the latest last
}

// observe takes in what was launched and what was done in some ticks. Processes that run at a time are busy once.
func (c *calibration) observe(l Launches, passed, tick time.Duration) {
	if c.device == 0 && l.Device == 0 && l.Blocks == 0 {
		return
	}
	c.blocks, c.passed = min(c.blocks+l.Blocks, most), c.passed+passed
	c.device = min(c.device+l.Device, c.passed)
	if c.device < sampled*tick {
		return
	}
	if c.blocks > 0 { // else it was launched before anybody counted
		c.rates = append(c.rates, int64(float64(c.blocks)*float64(tick)/float64(c.device)))
		c.rates = c.rates[max(0, len(c.rates)-remembered):]
	}
	c.blocks, c.device, c.passed = 0, 0, 0
}

// saturation is MaxTokens for a member whose processes have a cap under MPS. Where neighbours take its SMs it is slower: the highest
// rate is what it does without them.
func (c *calibration) saturation(limit share.PerMille) int64 {
	if len(c.rates) == 0 {
		return fallback
	}
	rate := min(slices.Max(c.rates), most/int64(share.Whole))
	return max(1, rate*int64(share.Whole)/int64(limit))
}
