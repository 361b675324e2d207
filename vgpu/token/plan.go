package token

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// windowTurn is a turn of the slot table (the part of each window in which one set of shares runs) at its position in the window.
type windowTurn struct {
	start, end time.Duration
	owners     []turnOwner
}

// turnOwner is a share that the slot table assigns to a turn.
type turnOwner struct {
	*member
	first bool          // it does not own the turn before
	end   time.Duration // end of its own time, since the window's start; the same for all turns of one series
}

// planTurns solves the slot table of the shares that have a quota request and returns its turns, or false if no table fits into the window.
// Without such a share, the window is one turn that has no owner.
func planTurns(c Config, all []*member) ([]windowTurn, bool) {
	if len(all) == 0 {
		return nil, true // the last share has left
	}
	members := slices.DeleteFunc(slices.Clone(all), func(m *member) bool { return !m.hasRequest() })
	if len(members) == 0 {
		return []windowTurn{{end: c.Window}}, true
	}
	table, ok := slot.Solve(itemsOf(members), c.Window, c.Reserve)
	if !ok {
		return nil, false
	}
	// A turn that exists only by rounding would cost two switches.
	table.Turns = slices.DeleteFunc(table.Turns, func(t slot.Turn) bool { return t.Duration < roundingTolerance })
	turns := make([]windowTurn, len(table.Turns))
	start := time.Duration(0)
	for k, length := range turnLengths(c, table) {
		turns[k] = windowTurn{start: start, end: start + length}
		start += length
	}
	for k := range turns {
		for _, at := range table.Turns[k].Members {
			turns[k].owners = append(turns[k].owners, newTurnOwner(members[at], turns, table, k, at))
		}
	}
	return turns, true
}

// newTurnOwner returns the share with index at as an owner of turn k. Consecutive turns of a share, also across the end of a window, form a
// series. The share's own time is counted from the first turn of the series, or from the start of the window if it has all turns. A share
// with the full quota also owns the time between turns.
func newTurnOwner(m *member, turns []windowTurn, t slot.Table, k, at int) turnOwner {
	n := len(turns)
	has := func(k int) bool { return slices.Contains(t.Turns[k%n].Members, at) }
	first := k
	for steps := 0; has(first + n - 1); steps++ {
		if steps == n {
			first = 0
			break
		}
		first = (first + n - 1) % n
	}
	end := turns[first].start
	for on := 0; on < n && has(first+on); on++ {
		end += t.Turns[(first+on)%n].Duration
	}
	switch {
	case m.QuotaRequest == share.Whole:
		end = t.Window
	case first > k:
		end -= t.Window
	}
	return turnOwner{m, first == k, end}
}

// turnLengths returns the lengths of a slot table's turns, extended to fill the window. Since every switch between turns costs the same,
// each turn gets an equal part of the reserve and is rounded up to a multiple of Config.Turn. If the window is too short for that, each
// gets an equal part of the time that the table leaves free.
func turnLengths(c Config, t slot.Table) []time.Duration {
	n := time.Duration(len(t.Turns))
	if n == 0 {
		return nil
	}
	even, grid := make([]time.Duration, n), make([]time.Duration, n)
	left, free := t.Window, t.Window
	for k, x := range t.Turns {
		even[k] = x.Duration
		grid[k] = roundUp(x.Duration+c.windowFraction(c.Reserve)/n, c.Turn)
		left, free = left-even[k], free-grid[k]
	}
	if free >= 0 && t.Window%c.Turn == 0 {
		return distributeTime(grid, free, c.Turn)
	}
	if left > 0 {
		return distributeTime(even, left, (left+n-1)/n)
	}
	return even
}

// distributeTime adds time to turns, in order and in portions of the given size, until it is used up.
func distributeTime(lengths []time.Duration, rest, each time.Duration) []time.Duration {
	for k := 0; rest > 0; k++ {
		d := min(each, rest)
		lengths[k%len(lengths)] += d
		rest -= d
	}
	return lengths
}

func roundUp(d, unit time.Duration) time.Duration { return (d + unit - 1) / unit * unit }

func itemsOf(members []*member) []slot.Item {
	items := make([]slot.Item, len(members))
	for k, m := range members {
		items[k] = slot.Item{SM: m.SM, Quota: m.QuotaRequest}
	}
	return items
}
