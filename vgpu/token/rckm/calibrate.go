package rckm

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

const (
	maxSamples = 64 // samples kept
	minSample  = 4  // ticks of device time that complete a sample
	longSample = 40 // ticks of device time that complete the sample of a member whose work never finishes
)

// calibration measures how many blocks of one member fill the slice for a tick (D19). It divides blocks by the device time that they
// take, neither of which depends on what slows the member down. Kernels that fill less than the member's cap count as if they filled
// it. Unfinished work is included in the blocks alone, so a sample is complete when no work is unfinished, or when it is so long that
// such work is negligible; only the first sample is used before that.
type calibration struct {
	blocks         int64         // of the incomplete sample
	device, passed time.Duration // of the incomplete sample
	rates          []int64       // blocks in a tick of device time, one for each sample, the latest last
	provisional    bool          // the only rate is of an incomplete sample
}

// observe adds what was launched and finished in some ticks. Processes that run at the same time count as busy once.
func (c *calibration) observe(l Launches, passed, tick time.Duration) {
	if c.device == 0 && l.Device == 0 && l.Blocks == 0 {
		return
	}
	c.blocks, c.passed = min(c.blocks+l.Blocks, maxBlocks), c.passed+passed
	c.device = min(c.device+l.Device, c.passed)
	complete := c.device >= minSample*tick && !l.Busy || c.device >= longSample*tick
	if !complete && (c.device < minSample*tick || len(c.rates) > 0) {
		return
	}
	if c.blocks > 0 { // otherwise the work was launched before the first report
		c.add(int64(float64(c.blocks)*float64(tick)/float64(c.device)), complete)
	}
	if complete {
		c.blocks, c.device, c.passed = 0, 0, 0
	}
}

// add appends a rate. It replaces a provisional one.
func (c *calibration) add(rate int64, complete bool) {
	if c.provisional {
		c.rates = nil
	}
	c.provisional = !complete
	c.rates = append(c.rates, rate)
	c.rates = c.rates[max(0, len(c.rates)-maxSamples):]
}

// wholeSlice returns the blocks that fill the whole slice for a tick, for a member with that cap under MPS. It uses the highest rate:
// the member is slower while neighbours use its SMs.
func (c *calibration) wholeSlice(cap share.PerMille) int64 {
	if len(c.rates) == 0 {
		return uncalibrated
	}
	rate := min(slices.Max(c.rates), maxBlocks/int64(share.Whole))
	return max(1, rate*int64(share.Whole)/int64(cap))
}
