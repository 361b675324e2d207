package delivery

import (
	"cmp"
	"time"

	"github.com/gshare-dev/gshare/vgpu/token"
)

// The published orders of FaST-GShare, for comparison with the product's policies.
var (
	// HeadOfLine is the token queue as the FaST-GShare paper describes it: the member with the largest missing time comes first, and no
	// member overtakes another one.
	HeadOfLine token.Policy = token.Queue{Name: "hol", Compare: byMissingTime, Barrier: func(time.Duration) time.Duration { return 0 }}
	// SkipAhead is the token queue of FaST-GShare's published code, but with SMs counted while selecting: every member that fits gets a
	// token.
	SkipAhead token.Policy = token.Queue{Name: "skip", Compare: token.Fast.(token.Queue).Compare, Barrier: func(time.Duration) time.Duration { return token.Never }}
)

// Policies returns the token policies that can be compared, gshare's default first.
func Policies() []token.Policy { return []token.Policy{token.Table, token.Fast, HeadOfLine, SkipAhead} }

// byMissingTime compares members of a queue by missing time, Q_miss = Q_request - Q_used, the largest first.
func byMissingTime(a, b token.Backlog) int { return cmp.Compare(b.Missing, a.Missing) }
