package token

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Policy is the order in which members get tokens.
type Policy int

const (
	// Table executes the slot table of the members, once a window.
	Table Policy = iota
	// Fast is the multi-token scheduler of FaST-GShare with its corrections: who lacks the largest part of its request
	// comes first (FG-80), and one that does not fit is overtaken only by tokens that end before it could start (F44).
	Fast
	// HeadOfLine is the paper as printed: largest missing time first, and nobody overtakes. For comparison.
	HeadOfLine
	// SkipAhead is what its code does: whatever fits goes, though SMs are counted while selecting. For comparison.
	SkipAhead
)

// Config is how one slice is shared. Zero durations stand for the defaults.
type Config struct {
	Policy  Policy
	Window  time.Duration  // in which quotas are accounted (F41); divides a second; default 100 ms
	Turn    time.Duration  // grid of turns, and longest token of the queue policies; default 5 ms
	Floor   time.Duration  // shortest token worth a switch (F42); default 2 ms
	Reserve share.PerMille // of the window, that tables leave to switching
}

func (c Config) withDefaults() Config {
	c.Window = cmp.Or(c.Window, 100*time.Millisecond)
	c.Turn = cmp.Or(c.Turn, 5*time.Millisecond)
	c.Floor = cmp.Or(c.Floor, 2*time.Millisecond)
	return c
}

func (c Config) validate() error {
	switch {
	case c.Policy < Table || c.Policy > SkipAhead:
		return fmt.Errorf("unknown policy %d", c.Policy)
	case c.Window < 10*time.Millisecond || time.Second%c.Window != 0:
		return fmt.Errorf("a window of %v does not divide a second into parts of 10 ms or more", c.Window)
	case c.Turn <= 0 || c.Turn > c.Window:
		return fmt.Errorf("a turn of %v does not fit a window of %v", c.Turn, c.Window)
	case c.Floor <= 0 || c.Floor > c.Turn:
		return fmt.Errorf("a floor of %v does not fit a turn of %v", c.Floor, c.Turn)
	case c.Reserve < 0 || c.Reserve >= share.Whole:
		return fmt.Errorf("a reserve of %v leaves nothing", c.Reserve)
	}
	return nil
}

// part is a per-mille of the window.
func (c Config) part(p share.PerMille) time.Duration {
	return c.Window * time.Duration(p) / time.Duration(share.Whole)
}
