package batching

import (
	"math"
	"time"
)

// Times are the times that answers of a replica took lately: their mean for each size of a batch, and how they vary around it. The zero value knows
// none. Its size does not depend on how many were measured.
//
// Times often differ by more than their mean. What waits before a request takes the sum of many of them, which is close to their mean times their number,
// whereas the request itself may be one of the slow ones: see Queue.
type Times struct {
	sizes  []average // by size-1
	ratios [ratioBuckets]bucket
	known  float64 // answers that ratios has, the older ones with less weight
	rank   float64 // a moving average of the parts of the known answers that were faster than the newest ones, less a half
}

// average is the mean of the answers to batches of one size.
type average struct {
	mean    time.Duration // 0 if none was measured
	answers int           // up to maxKnown
	since   int           // answers to smaller batches since then
}

// add adds an answer. Of the first one only a part counts, and only until the second: a server often answers its first request late.
func (a *average) add(took time.Duration) {
	a.since = 0
	if a.answers = min(a.answers+1, maxKnown); a.answers == 1 {
		a.mean = took * 3 / 10
		return
	}
	a.mean += (took - a.mean) / time.Duration(a.answers-1)
}

// bucket holds values between two powers of two, of which there are four per octave. Their mean stands for each of them.
type bucket struct{ weight, sum float64 }

func (b *bucket) add(weight, value float64) { b.weight, b.sum = b.weight+weight, b.sum+weight*value }
func (b *bucket) mean() float64             { return b.sum / b.weight }

// Ratios of a time to the mean are counted in buckets of 2^-6 to 2^10.
const (
	ratioBuckets = 16 * 4
	lowestRatio  = -6
)

// bucketOf returns the bucket of a positive value, of count many that begin at 2^lowest.
func bucketOf(x float64, lowest, count int) int {
	return min(max(int(math.Float64bits(x)>>50)-(1023+lowest)*4, 0), count-1)
}

// Answers have the same weight until they are maxKnown, and older ones have less from then on. What is learned follows a change of the load within about as
// many answers; a change of the replica itself is noticed sooner, see shifted.
const maxKnown = 200

// Add counts an answer to a batch that took the time took, while the replica had atOnce batches, this one included.
func (t *Times) Add(batch int, took time.Duration, atOnce int) {
	took = max(took, 4) // so that a part of it is not 0
	for len(t.sizes) < batch {
		t.sizes = append(t.sizes, average{})
	}
	size := &t.sizes[batch-1]
	if ratio := float64(took) / float64(max(size.mean, 1)); size.answers > 1 && t.shifted(ratio, atOnce) {
		*t = Times{sizes: t.sizes}
		for i := range t.sizes {
			t.sizes[i].answers = min(t.sizes[i].answers, 3)
		}
	} else if size.answers > 1 {
		t.remember(ratio)
	}
	size.add(took)
	for i := range t.sizes[batch:] {
		larger := &t.sizes[batch+i]
		if larger.since++; larger.since > maxUnused && larger.mean > took {
			larger.mean -= time.Duration(forgetWeight * float64(larger.mean-took))
		}
	}
}

// remember counts an answer that took ratio times the mean.
func (t *Times) remember(ratio float64) {
	if t.known >= maxKnown {
		const keep = 1 - 1.0/maxKnown
		for i := range t.ratios {
			t.ratios[i].weight, t.ratios[i].sum = keep*t.ratios[i].weight, keep*t.ratios[i].sum
		}
		t.known *= keep
	}
	t.ratios[bucketOf(ratio, lowestRatio, ratioBuckets)].add(1, ratio)
	t.known++
}

// forgetWeight is by which part the times of larger batches, of which none came among maxUnused smaller ones, approach that of a smaller one that turns out
// to be faster. Without it, a size that was slow once would never be tried again.
const (
	forgetWeight = 0.01
	maxUnused    = 100
)

// minShift bounds how far the average rank of the newest answers has to be from that of the median: of what begins together, the fast ones end first.
const minShift = 0.2

// shifted reports whether the replica has become slower or faster, with an answer that took ratio times the mean: the newest answers are, on average,
// slower or faster than far more than half of the known ones. One answer alone never tells this, however slow it is. The average covers two rounds of what
// the replica has at once. Without a change it is hardly ever that far off, four and a half standard deviations.
func (t *Times) shifted(ratio float64, atOnce int) bool {
	if t.known == 0 {
		return false
	}
	at := bucketOf(ratio, lowestRatio, ratioBuckets)
	faster := t.ratios[at].weight / 2
	for i := range at {
		faster += t.ratios[i].weight
	}
	weight := 1 / float64(4+2*atOnce)
	t.rank += weight * (faster/t.known - 0.5 - t.rank)
	return math.Abs(t.rank) > max(minShift, 1.3*math.Sqrt(weight/(2-weight)))
}

// Mean returns the mean time of a batch: the longest that was measured for a batch of at most its size or, if there is none, that of the smallest batch
// that was measured. So it never falls with the size. It is 0 if nothing was measured.
func (t *Times) Mean(batch int) time.Duration {
	var longest time.Duration
	for i := range t.sizes {
		if i >= batch && longest > 0 {
			break
		}
		longest = max(longest, t.sizes[i].mean)
	}
	return longest
}

// Longest returns the time within which all but the part missed of the batches that could end within the time limit do, as a multiple of the mean. It is
// 1 at least, or 1 if nothing was measured. Batches that take longer than limit do not count, as they are late in any case; if there is no limit, it is 0.
func (t *Times) Longest(mean time.Duration, missed float64, limit time.Duration) float64 {
	most := math.Inf(1)
	if limit > 0 && mean > 0 {
		most = float64(limit) / float64(mean)
	}
	var within float64
	for i := range t.ratios {
		if b := &t.ratios[i]; b.weight > 0 && b.mean() <= most {
			within += b.weight
		}
	}
	left := within * (1 - missed)
	for i := range t.ratios {
		if b := &t.ratios[i]; b.weight > 0 {
			if left -= b.weight; left <= 0 {
				return max(1, b.mean())
			}
		}
	}
	return 1
}

// Ends predicts when batches that a replica has will end. The zero value has none.
type Ends struct {
	batches int
	buckets [endBuckets]bucket // of seconds from now
}

// Times until a batch ends are counted in buckets of 2^-20 to 2^20 s.
const (
	endBuckets = 40 * 4
	lowestEnd  = -20
)

// Reset forgets the batches.
func (e *Ends) Reset() { *e = Ends{} }

// Add adds count batches that have been running for the time age, take as long as expected on average, and vary as t says. What takes longer than all that
// are known is expected to take as long again as it has.
func (e *Ends) Add(t *Times, expected, age time.Duration, count int) {
	e.batches += count
	weight := float64(count)
	mean, at := expected.Seconds(), age.Seconds()
	first, known := ratioBuckets, 0.0
	if mean > 0 {
		first = bucketOf(at/mean, lowestRatio, ratioBuckets)
		if b := &t.ratios[first]; b.weight > 0 && b.mean()*mean <= at {
			first++
		}
		for i := first; i < ratioBuckets; i++ {
			known += t.ratios[i].weight
		}
	}
	if known == 0 && mean > at && t.known == 0 { // there is only the mean
		e.add(weight, mean-at)
		return
	}
	if known == 0 {
		const parts = 8
		for i := range parts {
			longer := (float64(i) + 0.5) / parts // of the batches that take longer than age
			e.add(weight/parts, at*longer/(1-longer))
		}
		return
	}
	for i := first; i < ratioBuckets; i++ {
		if b := &t.ratios[i]; b.weight > 0 {
			e.add(weight*b.weight/known, b.mean()*mean-at)
		}
	}
}

func (e *Ends) add(weight, after float64) {
	e.buckets[bucketOf(after, lowestEnd, endBuckets)].add(weight, after)
}

// AppendTo appends when the first, the second, ... of the batches is expected to end, whichever that is. With many batches the first end comes long before
// the mean of any of them.
func (e *Ends) AppendTo(ends []time.Time, now time.Time) []time.Time {
	var passed float64
	next := 1
	last := now
	for i := range e.buckets {
		b := &e.buckets[i]
		if b.weight == 0 {
			continue
		}
		passed += b.weight
		last = now.Add(time.Duration(b.mean() * 1e9))
		for ; next <= e.batches && passed > float64(e.batches*next)/float64(e.batches+1)-1e-9; next++ {
			ends = append(ends, last)
		}
	}
	for ; next <= e.batches; next++ {
		ends = append(ends, last)
	}
	return ends
}
