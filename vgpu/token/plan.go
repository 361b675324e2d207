package token

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// turn is a turn of the table at its place in the window.
type turn struct {
	start, end time.Duration
	owners     []owner
}

// owner is a member in one of its turns.
type owner struct {
	*member
	first bool          // it was not in the turn before
	end   time.Duration // of its own time, in the window of this turn; the same for all of its turns on end
}

// plan places the turns of the members' slot table in the window; false if there is no table.
func plan(c Config, members []*member) ([]turn, bool) {
	if len(members) == 0 {
		return nil, true // the last one has left
	}
	table, ok := slot.Solve(itemsOf(members), c.Window, c.Reserve)
	if !ok {
		return nil, false
	}
	// What rounding leaves of a turn would cost two switches.
	table.Turns = slices.DeleteFunc(table.Turns, func(t slot.Turn) bool { return t.Duration < rounding })
	turns := make([]turn, len(table.Turns))
	start := time.Duration(0)
	for k, length := range lengths(c, table) {
		turns[k] = turn{start: start, end: start + length}
		start += length
	}
	for k := range turns {
		for _, at := range table.Turns[k].Members {
			turns[k].owners = append(turns[k].owners, ownerOf(members[at], turns, table, k, at))
		}
	}
	return turns, true
}

// ownerOf finds the turns on end, over the border of windows too, that turn k of the member belongs to, and adds its own
// time up from their first one on. Turns on end of a member of all turns begin with the window; one with full quota needs
// the time between turns too.
func ownerOf(m *member, turns []turn, t slot.Table, k, at int) owner {
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
	return owner{m, first == k, end}
}

// lengths stretches the turns to fill the window. Every switch costs the same, so every turn gets the same part of the
// time that the table leaves; or its part of the reserve and what is missing to a multiple of the grid, if the window
// has room for that.
func lengths(c Config, t slot.Table) []time.Duration {
	n := time.Duration(len(t.Turns))
	if n == 0 {
		return nil
	}
	even, grid := make([]time.Duration, n), make([]time.Duration, n)
	left, free := t.Window, t.Window
	for k, x := range t.Turns {
		even[k] = x.Duration
		grid[k] = roundUp(x.Duration+c.part(c.Reserve)/n, c.Turn)
		left, free = left-even[k], free-grid[k]
	}
	if free >= 0 && t.Window%c.Turn == 0 {
		return dealt(grid, free, c.Turn)
	}
	if left > 0 {
		return dealt(even, left, (left+n-1)/n)
	}
	return even
}

// dealt gives time away in equal pieces, in the order of the turns.
func dealt(lengths []time.Duration, rest, each time.Duration) []time.Duration {
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
