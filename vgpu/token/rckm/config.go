package rckm

import (
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// Member describes a share of an elastic slice.
type Member struct {
	ID             token.ID
	Priority       share.Priority
	Request, Limit share.PerMille // of the slice's SMs; the limit is also the member's cap under MPS

	// Violation is the length of a launch cycle, per mille of the reference, at which an SLO share is in EMERGENCY. Default 1600;
	// Dilu uses 1300 for language models.
	Violation share.PerMille

	// MaxTokens is the number of blocks of this share's kernels that fill the whole slice for a tick (D19). With 0 it is calibrated
	// from what the share launches.
	MaxTokens int64
}

func (m Member) valid() bool {
	return m.Priority.Valid() && 1 <= m.Request && m.Request <= m.Limit && m.Limit <= share.Whole &&
		(m.Violation == 0 || recoveredRatio <= m.Violation && m.Violation < burstRatio) && 0 <= m.MaxTokens && m.MaxTokens <= maxBlocks
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

	WholeSlice int64 // blocks that fill the whole slice for a tick: MaxTokens, given or calibrated
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
	window           = 100                      // ticks of the rate window, and of the longest cycle and debt
	quietAfter       = 10                       // ticks without launches after which a member counts as quiet
	defaultViolation = share.PerMille(1600)     // cycle of an EMERGENCY, of the reference
	recoveredRatio   = share.PerMille(1200)     // cycle below which best effort may grow, of the reference
	burstRatio       = share.PerMille(4000)     // cycle from which on it is long by itself, not by its neighbours, of the reference
	growthRatio      = share.PerMille(1300)     // growth of best effort, of its last tokens
	growthInterval   = 5                        // ticks between two growths of best effort
	bestEffortFloor  = share.PerMille(10)       // tokens that best effort always has, of its request
	capHeadroom      = 2                        // tokens of a member at its MPS cap, as a multiple of what the cap is worth
	uncalibrated     = int64(10_000_000)        // MaxTokens before the first measurement
	maxBlocks        = int64(1_000_000_000_000) // limit of all counts of blocks, so that products cannot overflow
)
