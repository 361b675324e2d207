package rckm

import (
	"fmt"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// Member describes a share of an elastic slice. A share without a request is best effort and gets up to its limit, but only while shares
// with a request leave the SMs of its cap idle, and in an EMERGENCY only while they do nothing.
type Member struct {
	ID             token.ID
	Priority       share.Priority
	Request, Limit share.PerMille // of the slice's SMs; the limit is also the member's cap under MPS

	// MaxTokens is the number of blocks of this share's kernels that fill the whole slice for a tick (D19). If it is 0, it is calibrated
	// from what the share launches. That is always so on a node; only the laboratory sets it.
	MaxTokens int64
}

func (m Member) valid() bool {
	return m.Priority.Valid() && 0 <= m.Request && m.Request <= m.Limit && 1 <= m.Limit && m.Limit <= share.Whole &&
		(m.Request > 0 || m.Priority == share.BestEffort) && 0 <= m.MaxTokens && m.MaxTokens <= maxBlocks
}

// Config configures the sharing of one elastic slice.
type Config struct {
	Tick      time.Duration // period of tokens; default 5 ms
	Algorithm Algorithm     // default: Algorithm 2 with corrections; the laboratory compares others with it
}

// Algorithm computes the block tokens of each share for the next tick and the new pressure of the slice, from the last pressure and the
// shares' observations.
type Algorithm func(last Pressure, members []Observation) (Pressure, []int64)

// Observation is the state of one share at the end of a tick, as input of an Algorithm.
type Observation struct {
	Member
	Tokens   int64         // tokens of the last tick
	Launches bool          // it has launched in the last hundred ticks
	Cycle    time.Duration // its latest launch cycle
	Shortest time.Duration // its shortest launch cycle so far

	WholeSlice int64 // blocks that fill the whole slice for a tick: MaxTokens, set or calibrated
}

// BlocksOf converts a part of the slice's SMs to the number of blocks that keep them busy for a tick, at least 1.
func (o Observation) BlocksOf(p share.PerMille) int64 { return blocksOf(o.WholeSlice, p) }

func blocksOf(wholeSlice int64, p share.PerMille) int64 {
	return max(1, wholeSlice*int64(p)/int64(share.Whole))
}

func (c Config) validate() error {
	if c.Tick < time.Millisecond || c.Tick > 100*time.Millisecond {
		return fmt.Errorf("a tick of %v is not between 1 and 100 ms", c.Tick)
	}
	return nil
}

// The parameters that the paper leaves open have the values of its public code (D17).
const (
	window          = 100                      // ticks of the rate window, and of the longest cycle and debt
	quietAfter      = 10                       // ticks without launches after which a member counts as quiet
	violationRatio  = share.PerMille(1600)     // cycle from which on there is an EMERGENCY, relative to the reference
	recoveredRatio  = share.PerMille(1200)     // cycle below which best effort may grow, relative to the reference
	burstRatio      = share.PerMille(4000)     // cycle that is long because of its own launches, not of neighbours, relative to the reference
	growthRatio     = share.PerMille(1300)     // growth of best effort, relative to its last tokens
	growthInterval  = 5                        // ticks between two growths of best effort
	bestEffortFloor = share.PerMille(10)       // tokens that best effort always has, relative to its request
	capHeadroom     = 2                        // tokens of a member at its MPS cap, as a multiple of what the cap is worth
	uncalibrated    = int64(10_000_000)        // MaxTokens before the first measurement
	maxBlocks       = int64(1_000_000_000_000) // limit of all counts of blocks, so that products cannot overflow
)

const (
	maxSamples = 64 // samples kept
	minSample  = 4  // ticks of device time that complete a sample
	longSample = 40 // ticks of device time that complete the sample of a member whose work never finishes
)

// calibration measures how many thread blocks of one share keep the whole slice busy for a tick (D19). It divides launched blocks by the
// device time that they take, which does not depend on what slows the share down. Kernels that fill less than the share's MPS cap count as
// if they filled it. Unfinished work counts in the blocks but not in the device time. So a sample is complete when no work is unfinished,
// or when it is so long that such work is negligible; only the first sample is used before it is complete.
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

// raise adds a rate that was measured without neighbours, if it is the highest.
func (c *calibration) raise(rate int64) {
	if len(c.rates) == 0 || rate > slices.Max(c.rates) {
		c.addRate(rate, true)
	}
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
