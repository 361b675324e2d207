package rckm

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// referenceCycles is the number of latest samples from which the reference, the length of a launch cycle without contention, is computed.
// At first it is the median of firstCycles, and counts as if all samples had that length: as long as neighbours never pause, only cycles that
// cannot be right replace it, and in an EMERGENCY only lasting ones.
const (
	referenceCycles = 20
	firstCycles     = 3
)

// meanBatches is the number of latest batches of a launch cycle that count most for the mean.
const meanBatches = 4

// maxCycle bounds the length of a cycle, so that products with it cannot overflow.
const maxCycle = window * time.Second

// launchCycles measures the launch cycles of a share. A launch cycle is a series of launches without a tick between them in which nothing
// was launched, as in Dilu's code: one batch, or several that came in a burst. If the host reports when it has waited for a batch, a cycle is
// as long as its batches together, and the reference (the length of an undisturbed cycle) is computed from batches. The ticks in which a
// batch of half a tick lies would make it up to three times as long.
type launchCycles struct {
	open             bool            // work is under way: of the cycle, or of its latest batch if the host reports batches
	first, last      time.Duration   // first and last launch of that work
	present, latest  cycle           // the part of the present cycle that has ended, and the latest cycle that has; empty after a pause
	hasBatches       bool            // the host reports batches
	undisturbedSince time.Duration   // end of the latest tick in which neighbours slowed the member down
	samples          []time.Duration // latest cycles or batches for the reference, oldest first
	reference        time.Duration   // time of a batch without contention (T_min); 0 if unknown
	shortest         time.Duration   // shortest cycle or batch so far, which the paper uses as reference
}

// cycle is a launch cycle that consists of batches, or of one series of launches in place of a batch.
type cycle struct {
	length  time.Duration // of all batches
	batches int64
	mean    time.Duration // length of a batch; of many, the latest ones count most
}

// and returns the cycle with one more batch.
func (c cycle) and(batch time.Duration) cycle {
	c.batches++
	return cycle{min(c.length+batch, maxCycle), c.batches, c.mean + (batch-c.mean)/time.Duration(min(c.batches, meanBatches))}
}

// addTick adds the launches of one tick. A launch cycle stays open while the share is blocked by its tokens or its work is unfinished.
// Without reported batches it is closed at the longest length, so that a reference is also known for a share that never pauses. A batch
// that began in the tick in which another one ended is seen in the next tick.
func (c *launchCycles) addTick(now time.Duration, l Launches, blocked bool, longest time.Duration) {
	switch {
	case l.Batch > 0:
		c.hasBatches, c.open = true, false
		c.present = c.present.and(l.Batch)
		c.updateReference(now-l.Batch, l.Batch)
	case l.Blocks > 0 && !c.open:
		c.open, c.first, c.last = true, l.First, l.Last
	case l.Blocks > 0:
		c.last = max(c.last, l.Last)
	case c.open && (blocked || l.Busy):
		c.last = max(c.last, now)
	case c.open && !c.hasBatches:
		c.close(c.last - c.first)
	default:
		c.endCycle()
	}
	if c.open && !c.hasBatches && now-c.first >= longest {
		c.close(now - c.first)
	}
}

// close ends a cycle of a host that reports no batches.
func (c *launchCycles) close(length time.Duration) {
	c.present = cycle{}.and(length)
	c.updateReference(c.first, length)
	c.endCycle()
}

func (c *launchCycles) endCycle() {
	if c.open = false; c.present.batches > 0 {
		c.latest, c.present = c.present, cycle{}
	}
}

// updateReference adds a launch cycle or batch to the samples of the reference (the length of an undisturbed one) if neighbours slowed down
// at most its first quarter, if it is so short that the reference must be wrong, or if it is so long that neighbours cannot be the cause.
func (c *launchCycles) updateReference(from, length time.Duration) {
	length = max(length, time.Microsecond)
	if c.shortest == 0 || length < c.shortest {
		c.shortest = length
	}
	r := c.reference
	if from+length/4 >= c.undisturbedSince || r > 0 && (length < r/2 || length/time.Duration(burstRatio/share.Whole) >= r) {
		c.samples = append(c.samples, length)
		c.samples = c.samples[max(0, len(c.samples)-referenceCycles):]
		if len(c.samples) == firstCycles { // only once
			c.samples = slices.Repeat([]time.Duration{median(c.samples)}, referenceCycles)
		}
		if len(c.samples) == referenceCycles {
			c.reference = median(c.samples)
		}
	}
}

func (c *launchCycles) hasReference() bool { return c.reference > 0 }

// isUnderWay reports whether a cycle has begun and has not ended.
func (c *launchCycles) isUnderWay() bool { return c.open || c.present.batches > 0 }

// median returns the sample in the middle, the shorter one of two. The shortest ever would stay the reference for good (D18), and of a low
// one, the usual variation of batches would count as contention.
func median(samples []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[(len(sorted)-1)/2]
}

// longest returns the latest launch cycle, or the present one once that is longer (T_current in Dilu). Work under way counts as a batch once
// it takes longer than those before it.
func (c *launchCycles) longest() cycle {
	p := c.present
	if open := min(c.last-c.first, maxCycle); c.open && open > p.mean {
		p = p.and(open)
	} else if c.open {
		p.length += open
	}
	if p.length > c.latest.length {
		return p
	}
	return c.latest
}

// ratios returns the length of the latest launch cycle, and that of its batches, in per mille of the length without contention; 0 if that
// is unknown. The second one is the slowdown by neighbours without the effect of a burst.
func (c *launchCycles) ratios() (length, stretch share.PerMille) {
	now := c.longest()
	return perMilleOf(now.length, c.reference), perMilleOf(now.mean, c.reference)
}

// perMilleOf returns a length in per mille of a reference length, at most 1,000,000, or 0 if the reference is 0.
func perMilleOf(length, reference time.Duration) share.PerMille {
	if reference == 0 {
		return 0
	}
	return share.PerMille(min(length*time.Duration(share.Whole)/reference, 1_000_000))
}

// reset forgets the latest launch cycle after a pause, as it does not predict the next one.
func (c *launchCycles) reset() { c.present, c.latest = cycle{}, cycle{} }
