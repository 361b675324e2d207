package rckm

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// kept is how many launch cycles the reference is taken from. The first one makes it: one that was too long, as the first of a program
// may be, gives way to any that is shorter.
const kept = 20

// cycles holds the launch cycles of a member (DI-56): launches without a silent tick between them, as Dilu's code has them.
// One cycle is one batch, or several that came in a burst. Where the host tells when it has waited for a batch, that is known
// apart, and is what the reference is made of.
type cycles struct {
	open        bool
	first, last time.Duration   // launches of the open cycle
	latest      time.Duration   // cycle that ended, as long as the member is not quiet
	batch       time.Duration   // the same of batches
	told        bool            // the host tells of batches
	clean       time.Duration   // since then no neighbour disturbs
	lessons     []time.Duration // the latest ones that teach the reference, oldest first
	reference   time.Duration   // what a batch takes without contention (T_min); 0: unknown
	least       time.Duration   // of all: what the paper compares with
}

// observe takes in one tick. A member that is held back, or whose work is not done, is still in its cycle. Where nobody tells of
// batches no cycle is longer than the rate window, so that a member that never pauses gets a reference too.
func (c *cycles) observe(now time.Duration, l Launches, held bool, longest time.Duration) {
	if l.Batch > 0 {
		c.told, c.batch = true, l.Batch
		c.learn(now-l.Batch, l.Batch)
	}
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
	if c.open && !c.told && now-c.first >= longest {
		c.close(now - c.first)
	}
}

func (c *cycles) close(length time.Duration) {
	c.open, c.latest = false, length
	if !c.told {
		c.learn(c.first, length)
	}
}

// learn makes a cycle part of the reference, if neighbours disturbed no more than its first quarter, or it is shorter, or too
// long for their doing.
func (c *cycles) learn(from, length time.Duration) {
	length = max(length, time.Microsecond)
	if c.least == 0 || length < c.least {
		c.least = length
	}
	r := c.reference
	if from+length/4 >= c.clean || r > 0 && (length < r || length/time.Duration(burst/share.Whole) >= r) {
		c.lessons = append(c.lessons, length)
		c.lessons = c.lessons[max(0, len(c.lessons)-kept):]
		c.reference = low(c.lessons)
	}
}

// learned says that there is a reference.
func (c *cycles) learned() bool { return c.reference > 0 }

// low is a low one of some cycles. The least one ever would stay for ever (D18), and beside a training that never pauses all
// cycles would be stretched.
func low(lessons []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(lessons))
	return sorted[len(sorted)/10]
}

// current is the time of the latest cycle: the open one as soon as it is the longer (T_current).
func (c *cycles) current() time.Duration {
	if c.open {
		return max(c.latest, c.last-c.first)
	}
	return c.latest
}

// ratio is the latest cycle, per mille of the reference.
func (c *cycles) ratio() share.PerMille { return perMille(c.current(), c.reference) }

// stretch is what the latest batch took, per mille of the reference: what neighbours do to it, without what a burst does.
func (c *cycles) stretch() share.PerMille {
	if c.told {
		return perMille(c.batch, c.reference)
	}
	return c.ratio()
}

// perMille compares two times; 0 without a reference.
func perMille(length, reference time.Duration) share.PerMille {
	if reference == 0 {
		return 0
	}
	return share.PerMille(min(length*time.Duration(share.Whole)/reference, 1_000_000))
}

// rest forgets what was before a pause: it says nothing of the next batch.
func (c *cycles) rest() { c.latest, c.batch = 0, 0 }
