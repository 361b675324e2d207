package token

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// ID names a member of a slice.
type ID int

// Member is one share on the slice (FG-77).
type Member struct {
	ID                       ID
	SM                       share.PerMille // of the slice, while it holds a token
	QuotaRequest, QuotaLimit share.PerMille // of every window
}

func (m Member) valid() bool {
	return within(m.SM, share.Whole) && within(m.QuotaLimit, share.Whole) && within(m.QuotaRequest, m.QuotaLimit)
}

func within(p, most share.PerMille) bool { return 1 <= p && p <= most }

// Unit is what a token is counted in. Tokens for blocks of kernels need another one.
type Unit int

// Time tokens allow launches from their grant to their deadline (FG-75); their amount is in nanoseconds.
const Time Unit = iota

// Token is the right of one member to launch kernels.
type Token struct {
	Unit     Unit
	Amount   int64
	Deadline time.Duration // since the slice's start
	Until    time.Duration // the end of the member's own time, if the next token may follow on this one; at least the deadline
	Sequence uint64        // counts the tokens of the slice, from 1
}

// Kind is what happens to a member.
type Kind int

// A member without a token gets one; a member goes on under a new token, without a pause; a member loses its token.
const (
	Grant Kind = iota + 1
	Renew
	Revoke
)

func (k Kind) String() string { return [...]string{"none", "grant", "renew", "revoke"}[k] }

// Change tells the server what to do for one member. A revoked Token is the one that ended.
type Change struct {
	ID    ID
	Kind  Kind
	Token Token
}
