package rckm

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// referenceCycles is the number of latest samples from which the reference, the length of a launch cycle without contention, is computed.
// The first cycle is the reference at once. If it was too long, as a starting program's may be, any shorter one replaces it.
const referenceCycles = 20

// launchCycles measures the launch cycles of a share. A launch cycle is a series of launches without a tick between them in which nothing
// was launched, as in Dilu's code: one batch, or several that came in a burst. If the host reports when it has waited for a batch, the
// reference (the length of an undisturbed cycle) is computed from those batches instead of cycles.
type launchCycles struct {
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

// addTick adds the launches of one tick. A launch cycle stays open while the share is blocked by its tokens or its work is unfinished.
// Without reported batches it is closed at the longest length, so that a reference is also known for a share that never pauses.
func (c *launchCycles) addTick(now time.Duration, l Launches, blocked bool, longest time.Duration) {
	if l.Batch > 0 {
		c.hasBatches, c.batch = true, l.Batch
		c.updateReference(now-l.Batch, l.Batch)
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

func (c *launchCycles) close(length time.Duration) {
	c.open, c.latest = false, length
	if !c.hasBatches {
		c.updateReference(c.first, length)
	}
}

// updateReference adds a launch cycle or batch to the samples of the reference (the length of an undisturbed one) if neighbours slowed down
// at most its first quarter, if it is shorter than the reference, or if it is so long that neighbours cannot be the cause.
func (c *launchCycles) updateReference(from, length time.Duration) {
	length = max(length, time.Microsecond)
	if c.shortest == 0 || length < c.shortest {
		c.shortest = length
	}
	r := c.reference
	if from+length/4 >= c.undisturbedSince || r > 0 && (length < r || length/time.Duration(burstRatio/share.Whole) >= r) {
		c.samples = append(c.samples, length)
		c.samples = c.samples[max(0, len(c.samples)-referenceCycles):]
		c.reference = firstDecile(c.samples)
	}
}

func (c *launchCycles) hasReference() bool { return c.reference > 0 }

// firstDecile returns the sample that a tenth of the samples does not exceed. The shortest ever would stay the reference for good (D18),
// and a median would grow beside a training job that never pauses.
func firstDecile(samples []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[len(sorted)/10]
}

// latestLength returns the length of the latest launch cycle, or of the open one once that is longer (T_current in Dilu).
func (c *launchCycles) latestLength() time.Duration {
	if c.open {
		return max(c.latest, c.last-c.first)
	}
	return c.latest
}

// cycleRatio returns the length of the latest launch cycle in per mille of the length without contention, or 0 if that is unknown.
func (c *launchCycles) cycleRatio() share.PerMille { return perMilleOf(c.latestLength(), c.reference) }

// batchRatio returns the length of the latest batch in per mille of the length without contention: the slowdown by neighbours without the
// effect of a burst. Without reported batches it returns cycleRatio.
func (c *launchCycles) batchRatio() share.PerMille {
	if c.hasBatches {
		return perMilleOf(c.batch, c.reference)
	}
	return c.cycleRatio()
}

// perMilleOf returns a length in per mille of a reference length, at most 1,000,000, or 0 if the reference is 0.
func perMilleOf(length, reference time.Duration) share.PerMille {
	if reference == 0 {
		return 0
	}
	return share.PerMille(min(length*time.Duration(share.Whole)/reference, 1_000_000))
}

// reset forgets the latest launch cycle and batch after a pause, as they do not predict the next ones.
func (c *launchCycles) reset() { c.latest, c.batch = 0, 0 }
