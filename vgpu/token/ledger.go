package token

import (
	"slices"
	"time"
)

// ledger is the account of one member: what it used lately, and how much it may use in any window. The window slides, so that a
// budget never returns all at once (F40).
type ledger struct {
	window, budget time.Duration
	pieces         []piece // ascending and disjoint
}

// piece is use without a gap. Measured use is dated from the grant on, wherever in the token it took place.
type piece struct{ from, to time.Duration }

// used returns the use since a time, including what is reserved for a live token.
func (l *ledger) used(since time.Duration) time.Duration {
	sum := time.Duration(0)
	for _, p := range l.pieces {
		sum += max(0, p.to-max(p.from, since))
	}
	return sum
}

// start returns the earliest time at which use of that length keeps every window within the budget. The length must not exceed the
// budget.
func (l *ledger) start(length time.Duration) time.Duration {
	left := l.budget - length
	for _, p := range slices.Backward(l.pieces) {
		if p.to-p.from > left {
			return p.to - left + l.window - length
		}
		left -= p.to - p.from
	}
	return 0
}

// available returns the longest use from now on that keeps every window within the budget. Use may go on while old use leaves the
// window as fast as new use enters it.
func (l *ledger) available(now time.Duration) time.Duration {
	edge := now - l.window
	available := l.budget - l.used(edge)
	if available < 0 {
		return 0
	}
	for _, p := range l.pieces {
		from := max(p.from, edge)
		if from-edge > available {
			break
		}
		available += max(0, p.to-from)
	}
	return available
}

// reserve charges a token at its grant (F43), and drops the use that no window includes any more.
func (l *ledger) reserve(now, length time.Duration) {
	l.pieces = slices.DeleteFunc(l.pieces, func(p piece) bool { return p.to <= now-l.window })
	l.charge(now, length)
}

// charge adds use from a time on, or behind the latest use if that ends later.
func (l *ledger) charge(from, length time.Duration) {
	if n := len(l.pieces); n > 0 && l.pieces[n-1].to >= from {
		l.pieces[n-1].to += length
		return
	}
	l.pieces = append(l.pieces, piece{from, from + length})
}

// correct charges use that has just ended, or removes the latest use if d is negative.
func (l *ledger) correct(now, d time.Duration) {
	if d > 0 {
		l.charge(now-d, d)
	}
	for n := len(l.pieces); d < 0 && n > 0; n = len(l.pieces) {
		p := &l.pieces[n-1]
		p.to += d
		if p.to > p.from {
			return
		}
		d = p.to - p.from
		l.pieces = l.pieces[:n-1]
	}
}
