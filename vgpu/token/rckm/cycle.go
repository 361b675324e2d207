package rckm

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// referenceCycles is the number of latest samples from which the reference, the length of a launch cycle without contention, is computed. The
// first one counts as if all samples had its length, so that only lasting changes replace it.
const referenceCycles = 20

// usualBatches is the number of latest batches of a launch cycle of which the usual length is computed.
const usualBatches = 4

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
	samples          []time.Duration // latest undisturbed cycles or batches, for the reference, oldest first
	all              []time.Duration // latest cycles or batches, oldest first
	reference        time.Duration   // time of a batch without contention (T_min); 0 if unknown
	shortest         time.Duration   // shortest cycle or batch so far, which the paper uses as reference
}

// cycle is a launch cycle that consists of batches, or of one series of launches in place of a batch.
type cycle struct {
	length time.Duration   // of all batches
	latest []time.Duration // lengths of the latest batches, oldest first
}

// and returns the cycle with one more batch.
func (c cycle) and(batch time.Duration) cycle {
	n := len(c.latest)
	return cycle{min(c.length+batch, maxCycle), append(slices.Clone(c.latest[max(0, n-usualBatches+1):]), batch)}
}

// usual returns the usual length of a batch of the cycle: the median of the latest ones, or the mean of two, so that a burst is noticed soon. A
// single batch that is longer than the others, as where a language model reads a prompt between two tokens, does not change it.
func (c cycle) usual() time.Duration {
	switch len(c.latest) {
	case 0:
		return 0
	case 2:
		return (c.latest[0] + c.latest[1]) / 2
	}
	return median(c.latest)
}

// addTick adds the launches of one tick. A launch cycle stays open while the share is blocked by its tokens or its work is unfinished.
// Without reported batches or a reference it is closed at the longest length, so that a reference is also known for a share that never
// pauses. If the host reports batches, work that is open for so long that it cannot be one says nothing: the host no longer waits.
func (c *launchCycles) addTick(now time.Duration, l Launches, blocked bool, longest time.Duration) {
	switch {
	case l.Batch > 0:
		c.hasBatches, c.open, c.first, c.last = true, l.Busy, now, now // what is unfinished has begun in this tick
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
	switch {
	case !c.open || now-c.first < longest:
	case !c.hasBatches || !c.hasReference():
		c.close(now - c.first)
	case c.isBeyond(now - c.first):
		c.reset()
	}
}

// isBeyond reports whether a length is so long that neighbours cannot be the cause.
func (c *launchCycles) isBeyond(length time.Duration) bool {
	return c.hasReference() && length/time.Duration(burstRatio/share.Whole) >= c.reference
}

// close ends a cycle without a reported batch.
func (c *launchCycles) close(length time.Duration) {
	c.present = cycle{}.and(length)
	c.updateReference(c.first, length)
	c.endCycle()
}

func (c *launchCycles) endCycle() {
	if c.open = false; len(c.present.latest) > 0 {
		c.latest, c.present = c.present, cycle{}
	}
}

// updateReference adds a launch cycle or batch to the samples of the reference (the length of an undisturbed one) if neighbours slowed down
// at most its first quarter, or if it is so long that neighbours cannot be the cause. Since neighbours only make batches longer, the median of
// all is never below the reference, except for the variation of batches: where it is, the reference was too long, as of a starting program.
func (c *launchCycles) updateReference(from, length time.Duration) {
	length = max(length, time.Microsecond)
	if c.shortest == 0 || length < c.shortest {
		c.shortest = length
	}
	if c.all = append(c.all, length); len(c.all) > referenceCycles {
		c.all = c.all[1:]
	}
	if m := median(c.all); len(c.all) == referenceCycles && perMilleOf(c.reference, m) > recoveredRatio {
		c.samples, c.reference = slices.Repeat([]time.Duration{m}, referenceCycles), m
	}
	switch {
	case from+length/4 < c.undisturbedSince && !c.isBeyond(length):
	case !c.hasReference():
		c.samples, c.reference = slices.Repeat([]time.Duration{length}, referenceCycles), length
	default:
		c.samples = append(c.samples[1:], length)
		c.reference = median(c.samples)
	}
}

func (c *launchCycles) hasReference() bool { return c.reference > 0 }

// median returns the sample in the middle, the shorter one of two. The shortest ever would stay the reference for good (D18), and of a low
// one, the usual variation of batches would count as contention.
func median(samples []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[(len(sorted)-1)/2]
}

// longest returns the latest launch cycle, or the present one once that is longer (T_current in Dilu). Work under way counts as a batch once
// it takes longer than those before it, unless it is so long that neighbours cannot be the cause.
func (c *launchCycles) longest() cycle {
	p, open := c.present, min(c.last-c.first, maxCycle)
	switch {
	case !c.open:
	case open > p.usual() && !(c.hasBatches && c.isBeyond(open)):
		p = p.and(open)
	default:
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
	return perMilleOf(now.length, c.reference), perMilleOf(now.usual(), c.reference)
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
