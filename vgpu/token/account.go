package token

import (
	"math"
	"slices"
	"time"
)

// account records when a share used its SMs lately, and limits that time to a budget in any window. The window slides, so that a budget
// never returns all at once (F40).
type account struct {
	window, budget time.Duration
	intervals      []interval    // ascending and disjoint
	forgotten      time.Duration // length of the intervals that were dropped since they are older than a window
}

// interval is a period in which a share used its SMs without a gap. Measured use counts from the start of its token, wherever in the token
// it took place.
type interval struct{ from, to time.Duration }

// used returns for how long the share has used its SMs since the given time, including what is reserved for a token that it still holds.
func (l *account) used(since time.Duration) time.Duration {
	sum := time.Duration(0)
	for _, p := range l.intervals {
		sum += max(0, p.to-max(p.from, since))
	}
	return sum
}

// total returns for how long the share has used its SMs in all, including what is reserved for a token that it still holds.
func (l *account) total() time.Duration { return l.forgotten + l.used(math.MinInt64) }

// earliestStart returns the earliest time from which the share may use its SMs for the given time without exceeding the budget in any
// window. The given time must not exceed the budget.
func (l *account) earliestStart(length time.Duration) time.Duration {
	left := l.budget - length
	for _, p := range slices.Backward(l.intervals) {
		if p.to-p.from > left {
			return p.to - left + l.window - length
		}
		left -= p.to - p.from
	}
	return 0
}

// longestUse returns for how long the share may use its SMs from now on without exceeding the budget in any window. Use may continue while
// old use leaves the window as fast as new use enters it.
func (l *account) longestUse(now time.Duration) time.Duration {
	edge := now - l.window
	available := l.budget - l.used(edge)
	if available < 0 {
		return 0
	}
	for _, p := range l.intervals {
		from := max(p.from, edge)
		if from-edge > available {
			break
		}
		available += max(0, p.to-from)
	}
	return available
}

// reserve charges the full length of a token when it is granted (F43), and forgets use that is older than a window.
func (l *account) reserve(now, length time.Duration) {
	old := 0
	for ; old < len(l.intervals) && l.intervals[old].to <= now-l.window; old++ {
		l.forgotten += l.intervals[old].to - l.intervals[old].from
	}
	l.intervals = slices.Delete(l.intervals, 0, old)
	l.charge(now, length)
}

// charge adds use of the SMs that begins at the given time, or at the end of the latest use if that is later.
func (l *account) charge(from, length time.Duration) {
	if n := len(l.intervals); n > 0 && l.intervals[n-1].to >= from {
		l.intervals[n-1].to += length
		return
	}
	l.intervals = append(l.intervals, interval{from, from + length})
}

// correct charges use of the SMs for a time d that has just ended, or removes the latest use if d is negative.
func (l *account) correct(now, d time.Duration) {
	if d > 0 {
		l.charge(now-d, d)
	}
	for n := len(l.intervals); d < 0 && n > 0; n = len(l.intervals) {
		p := &l.intervals[n-1]
		p.to += d
		if p.to > p.from {
			return
		}
		d = p.to - p.from
		l.intervals = l.intervals[:n-1]
	}
}
