package rckm

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// kept is how many launch cycles the reference is taken from.
const kept = 20

// cycles holds the launch cycles of a member (DI-56): launches without a silent tick between them, which is about one batch
// of inference. Cycles under contention take longer.
type cycles struct {
	open        bool
	first, last time.Duration   // launches of the open cycle
	closed      []time.Duration // the latest ones, oldest first
	least       time.Duration   // of all: what the paper compares with
}

// observe takes in one tick. A member that is held back, or whose work is not done, is still in its cycle; no cycle is
// longer than the rate window, so that a member that never pauses gets a reference too.
func (c *cycles) observe(now time.Duration, l Launches, held bool, longest time.Duration) {
	switch {
	case l.Blocks > 0 && !c.open:
		c.open, c.first, c.last = true, l.First, l.Last
	case l.Blocks > 0:
		c.last = max(c.last, l.Last)
	case c.open && (held || l.Busy):
		c.last = max(c.last, now)
	case c.open:
		c.close(c.last - c.first)
	}
	if c.open && now-c.first >= longest {
		c.close(now - c.first)
	}
}

func (c *cycles) close(length time.Duration) {
	c.open = false
	length = max(length, time.Microsecond)
	if c.least == 0 || length < c.least {
		c.least = length
	}
	c.closed = append(c.closed, length)
	c.closed = c.closed[max(0, len(c.closed)-kept):]
}

// current is the time of the latest cycle: the open one as soon as it is the longer (T_current).
func (c *cycles) current() time.Duration {
	length := time.Duration(0)
	if n := len(c.closed); n > 0 {
		length = c.closed[n-1]
	}
	if c.open {
		length = max(length, c.last-c.first)
	}
	return length
}

// reference is what a cycle takes without contention: a low one of the latest (T_min). The least one ever would stay for
// ever (D18).
func (c *cycles) reference() time.Duration {
	if len(c.closed) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(c.closed))
	return sorted[len(sorted)/10]
}

// ratio compares the two, per mille; 0 without a reference.
func (c *cycles) ratio(reference time.Duration) share.PerMille {
	if reference == 0 {
		return 0
	}
	return share.PerMille(min(c.current()*time.Duration(share.Whole)/reference, 1_000_000))
}
