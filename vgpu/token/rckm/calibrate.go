package rckm

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

const (
	remembered = 64 // samples
	sampled    = 4  // ticks of device time that make a sample
	endless    = 40 // of a member that always has launched more
)

// calibration measures what the slice is worth for one member (D19, DI-69). Blocks differ from kernel to kernel, so it counts them
// against the time that they keep the device busy: whatever holds the member back shows in neither. Kernels that fill
// less than its cap count as if they filled it. What is launched and not yet done is in the blocks alone, so a sample ends where
// nothing is, or is so long that it counts for little; only the first need not wait for that.
type calibration struct {
	blocks         int64
	device, passed time.Duration // of the open sample
	rates          []int64       // blocks in a tick of device time, the latest last
	hasty          bool          // the only one is of a sample that ended too soon
}

// observe takes in what was launched and what was done in some ticks. Processes that run at a time are busy once.
func (c *calibration) observe(l Launches, passed, tick time.Duration) {
	if c.device == 0 && l.Device == 0 && l.Blocks == 0 {
		return
	}
	c.blocks, c.passed = min(c.blocks+l.Blocks, most), c.passed+passed
	c.device = min(c.device+l.Device, c.passed)
	exact := c.device >= sampled*tick && !l.Busy || c.device >= endless*tick
	if !exact && (c.device < sampled*tick || len(c.rates) > 0) {
		return
	}
	if c.blocks > 0 { // else it was launched before anybody counted
		c.add(int64(float64(c.blocks)*float64(tick)/float64(c.device)), exact)
	}
	if exact {
		c.blocks, c.device, c.passed = 0, 0, 0
	}
}

// add takes a rate in. A hasty one gives way to the sample that it was the beginning of.
func (c *calibration) add(rate int64, exact bool) {
	if c.hasty {
		c.rates = nil
	}
	c.hasty = !exact
	c.rates = append(c.rates, rate)
	c.rates = c.rates[max(0, len(c.rates)-remembered):]
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
