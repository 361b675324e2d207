package rckm

import (
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// Member is one share on the slice.
type Member struct {
	ID             token.ID
	Priority       share.Priority
	Request, Limit share.PerMille // of the slice's SMs; the limit is also the member's cap under MPS

	// Violation is the launch cycle at which an SLO member is in EMERGENCY, per mille of its reference; 0: 1600. Dilu
	// uses 1300 for language models.
	Violation share.PerMille

	// MaxTokens is what the whole slice is worth: blocks of this member's kernels that fill it for a tick (D19). With 0
	// it is calibrated from what the member launches.
	MaxTokens int64
}

func (m Member) valid() bool {
	return m.Priority.Valid() && 1 <= m.Request && m.Request <= m.Limit && m.Limit <= share.Whole &&
		(m.Violation == 0 || recovered <= m.Violation && m.Violation < burst) && 0 <= m.MaxTokens && m.MaxTokens <= most
}

// Config is how one slice is shared.
type Config struct {
	Tick    time.Duration // in which tokens are issued (DI-52); default 5 ms
	Printed bool          // Algorithm 2 as the paper prints it, for comparison
}

func (c Config) validate() error {
	if c.Tick < time.Millisecond || c.Tick > 100*time.Millisecond {
		return fmt.Errorf("a tick of %v is not between 1 and 100 ms", c.Tick)
	}
	return nil
}

// What the paper leaves open is set as in its public code (D17).
const (
	window    = 100                      // ticks of a rate window, and of the longest cycle and debt
	silence   = 10                       // ticks without launches after which a member counts as quiet
	violation = share.PerMille(1600)     // of the reference, where the member names none
	recovered = share.PerMille(1200)     // below it, best effort may grow
	burst     = share.PerMille(4000)     // from here on a cycle is long by itself, not for its neighbours
	growth    = share.PerMille(1300)     // of the last tokens
	pace      = 5                        // ticks between two growths of best effort: cycles of issue, as Algorithm 2 has the word
	floor     = share.PerMille(10)       // of the request: best effort always has so much
	room      = 2                        // times what the cap is worth: tokens of a member that MPS holds
	fallback  = int64(10_000_000)        // MaxTokens before anything is measured
	most      = int64(1_000_000_000_000) // keeps products of blocks from overflowing
)
