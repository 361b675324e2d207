package token

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// ID identifies a member of a Slice.
type ID int

// Member describes a share that takes part in the time sharing of a slice.
type Member struct {
	ID                       ID
	SM                       share.PerMille // SMs of the slice, while it holds a token
	QuotaRequest, QuotaLimit share.PerMille // part of every window
}

func (m Member) valid() bool {
	return within(m.SM, share.Whole) && within(m.QuotaLimit, share.Whole) && within(m.QuotaRequest, m.QuotaLimit)
}

func within(p, most share.PerMille) bool { return 1 <= p && p <= most }

// Unit is the unit of the amount of a token.
type Unit int

// The units of tokens.
const (
	// Time is the unit of tokens that allow launches until a deadline. The amount is in nanoseconds.
	Time Unit = iota
	// Blocks is the unit of tokens that allow the launch of a number of thread blocks (D19), as package rckm issues them. They have no
	// deadline: the next token replaces them.
	Blocks
)

// Token is the right of one member to launch kernels, limited by time or by a number of thread blocks.
type Token struct {
	Unit     Unit
	Amount   int64
	Deadline time.Duration // since the slice's start
	Until    time.Duration // end of the member's own time, at which a series of tokens without a pause ends; not before the deadline
	Sequence uint64        // number of the token on its slice, from 1
}

// Kind is the kind of a Change: Grant, Renew or Revoke.
type Kind int

// The kinds of changes.
const (
	Grant  Kind = iota + 1 // a member without a token gets one
	Renew                  // a member continues under a new token
	Revoke                 // a member loses its token
)

func (k Kind) String() string { return [...]string{"none", "grant", "renew", "revoke"}[k] }

// Change is a change of a member's token that the token server has to apply. For a Revoke, Token is the one that ended.
type Change struct {
	ID    ID
	Kind  Kind
	Token Token
}
