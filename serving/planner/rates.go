package planner

import (
	"slices"
	"time"
)

// samplesPerSpan is about how many samples of a counter are kept over the span of its mean rate.
const samplesPerSpan = 60

// meter turns a counter of requests, which only grows, into a mean rate.
type meter struct {
	samples []sample // oldest first
}

type sample struct {
	at    time.Time
	count uint64
}

// observe adds a sample of the counter. If the counter has fallen, it starts anew: the replicas that counted before are gone.
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
	// The mean begins at the newest sample that is at least span old.
	first := 0
	for first+1 < len(m.samples) && now.Sub(m.samples[first+1].at) >= span {
		first++
	}
	m.samples = slices.Delete(m.samples, 0, first)
}

// rate returns the mean rate over at least span, in requests per second. It returns false if the counter has not been known for that long.
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
