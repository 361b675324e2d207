package rckm

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// referenceCycles is the number of launch cycles from which the reference is taken. The first cycle is the reference at once; if it was
// too long, as that of a starting program may be, any shorter one replaces it.
const referenceCycles = 20

// cycles holds the launch cycles of a member: launches without a silent tick between them, as in Dilu's code. A cycle is one batch, or
// several that came in a burst. Where the host reports when it has waited for a batch, batches are known apart, and are what the
// reference is taken from.
type cycles struct {
	open             bool
	first, last      time.Duration   // first and last launch of the open cycle
	latest           time.Duration   // latest cycle that ended; 0 after a pause
	batch            time.Duration   // latest batch that ended; 0 after a pause
	hasBatches       bool            // the host reports batches
	undisturbedSince time.Duration   // end of the latest tick in which neighbours slowed the member down
	samples          []time.Duration // latest cycles or batches for the reference, oldest first
	reference        time.Duration   // time of a batch without contention (T_min); 0 if unknown
	shortest         time.Duration   // shortest cycle or batch so far, which the paper uses as reference
}

// observe adds one tick. The cycle of a member goes on while it is blocked by its tokens or its work is unfinished. Without reported
// batches a cycle ends at the longest length, so that a member that never pauses gets a reference too.
func (c *cycles) observe(now time.Duration, l Launches, blocked bool, longest time.Duration) {
	if l.Batch > 0 {
		c.hasBatches, c.batch = true, l.Batch
		c.addSample(now-l.Batch, l.Batch)
	}
	switch {
	case l.Blocks > 0 && !c.open:
		c.open, c.first, c.last = true, l.First, l.Last
	case l.Blocks > 0:
		c.last = max(c.last, l.Last)
	case c.open && (blocked || l.Busy):
		c.last = max(c.last, now)
	case c.open:
		c.close(c.last - c.first)
	}
	if c.open && !c.hasBatches && now-c.first >= longest {
		c.close(now - c.first)
	}
}

func (c *cycles) close(length time.Duration) {
	c.open, c.latest = false, length
	if !c.hasBatches {
		c.addSample(c.first, length)
	}
}

// addSample uses a cycle for the reference if neighbours slowed down no more than its first quarter, or if it is shorter than the
// reference, or so long that neighbours cannot be the cause.
func (c *cycles) addSample(from, length time.Duration) {
	length = max(length, time.Microsecond)
	if c.shortest == 0 || length < c.shortest {
		c.shortest = length
	}
	r := c.reference
	if from+length/4 >= c.undisturbedSince || r > 0 && (length < r || length/time.Duration(burstRatio/share.Whole) >= r) {
		c.samples = append(c.samples, length)
		c.samples = c.samples[max(0, len(c.samples)-referenceCycles):]
		c.reference = lowDecile(c.samples)
	}
}

func (c *cycles) hasReference() bool { return c.reference > 0 }

// lowDecile returns the length that a tenth of the samples does not exceed. The shortest ever would stay the reference for good (D18),
// and a median would be stretched beside a training that never pauses.
func lowDecile(samples []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[len(sorted)/10]
}

// current returns the length of the latest cycle, or of the open one once that is longer (T_current).
func (c *cycles) current() time.Duration {
	if c.open {
		return max(c.latest, c.last-c.first)
	}
	return c.latest
}

// ratio returns the latest cycle, per mille of the reference.
func (c *cycles) ratio() share.PerMille { return perMille(c.current(), c.reference) }

// stretch returns the latest batch, per mille of the reference: the effect of neighbours without that of a burst.
func (c *cycles) stretch() share.PerMille {
	if c.hasBatches {
		return perMille(c.batch, c.reference)
	}
	return c.ratio()
}

// perMille returns a length in per mille of the reference, or 0 without a reference.
func perMille(length, reference time.Duration) share.PerMille {
	if reference == 0 {
		return 0
	}
	return share.PerMille(min(length*time.Duration(share.Whole)/reference, 1_000_000))
}

// reset forgets the latest cycle and batch after a pause, as they do not predict the next ones.
func (c *cycles) reset() { c.latest, c.batch = 0, 0 }
