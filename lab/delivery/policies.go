package delivery

import (
	"cmp"
	"time"

	"github.com/gshare-dev/gshare/vgpu/token"
)

// The published orders of FaST-GShare, for comparison with the product's policies.
var (
	// HeadOfLine is the queue as the paper prints it: the member with the largest missing time comes first, and no member overtakes
	// another one.
	HeadOfLine token.Policy = token.Queue{Name: "hol", Compare: byMissingTime, Barrier: func(time.Duration) time.Duration { return 0 }}
	// SkipAhead is the queue of its code, with SMs counted while selecting: every member that fits gets a token.
	SkipAhead token.Policy = token.Queue{Name: "skip", Compare: token.Fast.(token.Queue).Compare, Barrier: func(time.Duration) time.Duration { return token.Never }}
)

// Policies returns the token policies that can be compared, the product's default first.
func Policies() []token.Policy { return []token.Policy{token.Table, token.Fast, HeadOfLine, SkipAhead} }

// byMissingTime orders by Q_miss = Q_request - Q_used.
func byMissingTime(a, b token.Backlog) int { return cmp.Compare(b.Missing, a.Missing) }
