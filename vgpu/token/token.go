package token

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// ID identifies a member of a slice.
type ID int

// Member is one share on the slice.
type Member struct {
	ID                       ID
	SM                       share.PerMille // SMs of the slice, while it holds a token
	QuotaRequest, QuotaLimit share.PerMille // part of every window
}

func (m Member) valid() bool {
	return within(m.SM, share.Whole) && within(m.QuotaLimit, share.Whole) && within(m.QuotaRequest, m.QuotaLimit)
}

func within(p, most share.PerMille) bool { return 1 <= p && p <= most }

// Unit is the unit of a token's amount.
type Unit int

// The units of tokens.
const (
	// Time is the unit of tokens that allow launches from their grant to their deadline. The amount is in nanoseconds.
	Time Unit = iota
	// Blocks is the unit of tokens that allow the launch of a number of thread blocks (D19). They have no deadline: the next token
	// replaces them. Package rckm issues them.
	Blocks
)

// Token is the right of one member to launch kernels.
type Token struct {
	Unit     Unit
	Amount   int64
	Deadline time.Duration // since the slice's start
	Until    time.Duration // end of the member's own time, at which a series of tokens without a pause ends; not before the deadline
	Sequence uint64        // number of the token on its slice, from 1
}

// Kind is the kind of a Change.
type Kind int

// The kinds of changes.
const (
	Grant  Kind = iota + 1 // a member without a token gets one
	Renew                  // a member continues under a new token
	Revoke                 // a member loses its token
)

func (k Kind) String() string { return [...]string{"none", "grant", "renew", "revoke"}[k] }

// Change is what a server has to apply for one member. For a Revoke, Token is the one that ended.
type Change struct {
	ID    ID
	Kind  Kind
	Token Token
}
