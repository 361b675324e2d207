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

// calibration measures how many thread blocks of one share keep the whole slice busy for a tick (D19). It divides launched blocks by the
// device time that they take, which does not depend on what slows the share down. Kernels that fill less than the share's MPS cap count as
// if they filled it. Unfinished work is included in the blocks alone, so a sample is complete when no work is unfinished, or when it is so
// long that such work is negligible; only the first sample is used before that.
type calibration struct {
	blocks         int64         // of the incomplete sample
	device, passed time.Duration // of the incomplete sample
	rates          []int64       // blocks in a tick of device time, one for each sample, the latest last
	provisional    bool          // the only rate is of an incomplete sample
}

// addTicks adds what a share launched and finished in one or more ticks. Its device time is limited to the time that passed, as processes
// that run at the same time count as busy once.
func (c *calibration) addTicks(l Launches, passed, tick time.Duration) {
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
		c.addRate(int64(float64(c.blocks)*float64(tick)/float64(c.device)), complete)
	}
	if complete {
		c.blocks, c.device, c.passed = 0, 0, 0
	}
}

// addRate appends a measured rate, in blocks per tick of device time. It replaces the rate of an incomplete sample.
func (c *calibration) addRate(rate int64, complete bool) {
	if c.provisional {
		c.rates = nil
	}
	c.provisional = !complete
	c.rates = append(c.rates, rate)
	c.rates = c.rates[max(0, len(c.rates)-maxSamples):]
}

// wholeSlice returns the number of blocks that keep the whole slice busy for a tick, scaled from a share with the given MPS cap. It uses
// the highest measured rate, since the share is slower while neighbours use its SMs.
func (c *calibration) wholeSlice(cap share.PerMille) int64 {
	if len(c.rates) == 0 {
		return uncalibrated
	}
	rate := min(slices.Max(c.rates), maxBlocks/int64(share.Whole))
	return max(1, rate*int64(share.Whole)/int64(cap))
}
