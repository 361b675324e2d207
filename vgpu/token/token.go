package token

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// ID identifies a share on a Slice.
type ID int

// Member describes a share that takes part in the time sharing of a slice. A share without a quota request gets only the time that all
// others leave, up to its limit.
type Member struct {
	ID                       ID
	SM                       share.PerMille // SMs of the slice, while it holds a token
	QuotaRequest, QuotaLimit share.PerMille // part of every window
}

func (m Member) valid() bool {
	return within(m.SM, share.Whole) && within(m.QuotaLimit, share.Whole) && (!m.hasRequest() || within(m.QuotaRequest, m.QuotaLimit))
}

func (m Member) hasRequest() bool { return m.QuotaRequest != 0 }

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

// Token is the right of one share to launch kernels, limited by time or by a number of thread blocks.
type Token struct {
	Unit     Unit
	Amount   int64
	Deadline time.Duration // since the slice's start
	Until    time.Duration // end of the member's own time, at which a series of tokens without a pause ends; not before the deadline
	Sequence uint64        // number of the token on its slice, from 1
}

// Kind is the kind of a Change: Grant, Renew or Revoke a token.
type Kind int

// The kinds of changes.
const (
	Grant  Kind = iota + 1 // a member without a token gets one
	Renew                  // a member continues under a new token
	Revoke                 // a member loses its token
)

func (k Kind) String() string { return [...]string{"none", "grant", "renew", "revoke"}[k] }

// Change is a change of a share's token that the token server has to apply. For a Revoke, Token is the one that ended.
type Change struct {
	ID    ID
	Kind  Kind
	Token Token
}

// Config configures how the shares of one slice take turns. Zero values select the defaults.
type Config struct {
	Policy  Policy         // default Table
	Window  time.Duration  // accounting period of quotas (F41); must divide a second; default 100 ms
	Turn    time.Duration  // turns are multiples of it, and tokens of a Queue at most that long; default 5 ms
	Floor   time.Duration  // shortest token worth a switch (F42); default 2 ms
	Reserve share.PerMille // part of the window that tables keep free for switching
}

func (c Config) withDefaults() Config {
	if c.Policy == nil {
		c.Policy = Table
	}
	c.Window = cmp.Or(c.Window, 100*time.Millisecond)
	c.Turn = cmp.Or(c.Turn, 5*time.Millisecond)
	c.Floor = cmp.Or(c.Floor, 2*time.Millisecond)
	return c
}

func (c Config) validate() error {
	switch q, isQueue := c.Policy.(Queue); {
	case isQueue && (q.NewOrder == nil || q.Barrier == nil):
		return fmt.Errorf("policy %s has no order or no barrier", q)
	case c.Window < 10*time.Millisecond || time.Second%c.Window != 0:
		return fmt.Errorf("a window of %v does not divide a second into parts of 10 ms or more", c.Window)
	case c.Turn <= 0 || c.Turn > c.Window:
		return fmt.Errorf("a turn of %v does not fit a window of %v", c.Turn, c.Window)
	case c.Floor <= 0 || c.Floor > c.Turn:
		return fmt.Errorf("a floor of %v does not fit a turn of %v", c.Floor, c.Turn)
	case c.Reserve < 0 || c.Reserve >= share.Whole:
		return fmt.Errorf("a reserve of %v is not a part of the window", c.Reserve)
	}
	return nil
}

// windowFraction returns the duration of a per-mille fraction of the accounting window.
func (c Config) windowFraction(p share.PerMille) time.Duration {
	return c.Window * time.Duration(p) / time.Duration(share.Whole)
}
