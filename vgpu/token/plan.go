package token

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// turn is a turn of the slot table at its position in the window.
type turn struct {
	start, end time.Duration
	owners     []owner
}

// owner is a member in one of its turns.
type owner struct {
	*member
	first bool          // it has no share in the turn before
	end   time.Duration // end of its own time, since the window's start; the same for all turns of one series
}

// planTurns returns the turns of the members' slot table, and false if they have no table.
func planTurns(c Config, members []*member) ([]turn, bool) {
	if len(members) == 0 {
		return nil, true // the last one has left
	}
	table, ok := slot.Solve(itemsOf(members), c.Window, c.Reserve)
	if !ok {
		return nil, false
	}
	// A turn that exists only by rounding would cost two switches.
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

// ownerOf returns the member as owner of turn k. Its own time is that of the series of consecutive turns, also across the border of
// windows, that the turn belongs to, counted from the first of them. The series of a member of all turns begins with the window; one
// with full quota also needs the time between turns.
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

// lengths returns the lengths of the turns, stretched to fill the window. Every switch costs the same, so every turn gets the same part
// of the time that the table leaves free; or its part of the reserve, rounded up to the grid, if the window is long enough for that.
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
		return distribute(grid, free, c.Turn)
	}
	if left > 0 {
		return distribute(even, left, (left+n-1)/n)
	}
	return even
}

// distribute adds the rest to the lengths, in equal pieces and in the order of the turns.
func distribute(lengths []time.Duration, rest, each time.Duration) []time.Duration {
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
