package token

import (
	"slices"
	"time"
)

// ledger holds what one member used lately, and how much it may use in any window: a sliding account, so that a budget
// never comes back all at once (F40).
type ledger struct {
	window, budget time.Duration
	pieces         []piece // ascending and disjoint
}

// piece is use without a gap. Measured use is dated from the grant on, wherever in the token it took place.
type piece struct{ from, to time.Duration }

// used is the use since a time, with what is reserved for a live token (FG-78).
func (l *ledger) used(since time.Duration) time.Duration {
	sum := time.Duration(0)
	for _, p := range l.pieces {
		sum += max(0, p.to-max(p.from, since))
	}
	return sum
}

// start is the earliest time at which a run of that length keeps every window within the budget. The length must be
// within the budget itself.
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

// room is the longest run from now on that keeps every window within the budget. While old use leaves the window as
// fast as new use enters it, the run may go on.
func (l *ledger) room(now time.Duration) time.Duration {
	edge := now - l.window
	room := l.budget - l.used(edge)
	if room < 0 {
		return 0
	}
	for _, p := range l.pieces {
		from := max(p.from, edge)
		if from-edge > room {
			break
		}
		room += max(0, p.to-from)
	}
	return room
}

// reserve charges a token at its grant (F43), and forgets what no window holds any more.
func (l *ledger) reserve(now, length time.Duration) {
	l.pieces = slices.DeleteFunc(l.pieces, func(p piece) bool { return p.to <= now-l.window })
	l.charge(now, length)
}

// charge adds use from a time on, or behind what is there.
func (l *ledger) charge(from, length time.Duration) {
	if n := len(l.pieces); n > 0 && l.pieces[n-1].to >= from {
		l.pieces[n-1].to += length
		return
	}
	l.pieces = append(l.pieces, piece{from, from + length})
}

// correct charges use that has just ended, or takes the latest use back if d is negative.
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
