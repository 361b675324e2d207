package planner

import (
	"slices"
	"time"
)

// samplesPerSpan bounds how many samples of a counter are kept of the time over which its rate is the mean.
const samplesPerSpan = 60

// meter turns a counter of requests, which only grows, into a mean rate.
type meter struct {
	samples []sample // oldest first
}

type sample struct {
	at    time.Time
	count uint64
}

// observe notes what the counter is now. A counter that has fallen begins anew: those who counted are gone.
func (m *meter) observe(count uint64, now time.Time, span time.Duration) {
	if n := len(m.samples); n > 0 {
		last := m.samples[n-1]
		if count < last.count {
			m.samples = nil
		} else if now.Sub(last.at) < span/samplesPerSpan {
			return
		}
	}
	m.samples = append(m.samples, sample{now, count})
	// The newest sample that is at least the span old is where the mean begins.
	first := 0
	for first+1 < len(m.samples) && now.Sub(m.samples[first+1].at) >= span {
		first++
	}
	m.samples = slices.Delete(m.samples, 0, first)
}

// rate returns the mean over at least the span, in requests a second, and false if the counter is not known for so long.
func (m *meter) rate(span time.Duration) (float64, bool) {
	if len(m.samples) < 2 {
		return 0, false
	}
	first, last := m.samples[0], m.samples[len(m.samples)-1]
	past := last.at.Sub(first.at)
	if past < span {
		return 0, false
	}
	return float64(last.count-first.count) / past.Seconds(), true
}
