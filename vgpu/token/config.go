package token

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

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
	case isQueue && (q.Compare == nil || q.Barrier == nil):
		return fmt.Errorf("policy %s lacks a rule", q)
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

// windowFraction returns the duration of a per-mille fraction of the window.
func (c Config) windowFraction(p share.PerMille) time.Duration {
	return c.Window * time.Duration(p) / time.Duration(share.Whole)
}
