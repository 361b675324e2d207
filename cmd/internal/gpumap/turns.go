package gpumap

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// turns draws a slot table. The intervals of a window, its turns, are side by side from left to right. Within each turn, the shares that run in
// it are stacked.
type turns struct {
	window time.Duration
	items  []slot.Item
	table  slot.Table
}

// solve returns the slot table of the shares, or an empty one and false if there is none.
func solve(shares []Share, window time.Duration, reserve share.PerMille) (turns, bool) {
	shares = withSMTime(shares)
	items := make([]slot.Item, len(shares))
	for at, x := range shares {
		items[at] = slot.Item{SM: x.Share.SMRequest, Quota: x.Share.QuotaRequest}
	}
	table, ok := slot.Solve(items, window, reserve)
	if !ok {
		return turns{window: window}, false
	}
	return turns{window, items, table}, true
}

func (t turns) name() string {
	if len(t.table.Turns) == 0 {
		return "slot table"
	}
	return "slot table of " + countOf(len(t.table.Turns), "turn")
}

func (t turns) tall() int {
	most := 0
	for _, turn := range t.table.Turns {
		most = max(most, len(turn.Members))
	}
	return most
}

func (t turns) draw(width, height int) picture {
	p := picture{width: width, height: height, window: t.window}
	list := t.withUnusedTime()
	sizes := make([]int64, len(list))
	for k := range list {
		sizes[k] = int64(list[k].Duration)
	}
	at, begin := edges(sizes, int64(t.window), width), time.Duration(0)
	for k, turn := range list {
		p.ticks = append(p.ticks, tick{at[k], begin})
		begin += turn.Duration
		t.stackShares(&p, turn.Members, at[k], at[k+1])
	}
	return p
}

// withUnusedTime returns the turns, followed by the unused rest of the window as a further turn, in which only shares with a quota of 100 % run.
func (t turns) withUnusedTime() []slot.Turn {
	rest := t.window
	for _, turn := range t.table.Turns {
		rest -= turn.Duration
	}
	if rest < t.window/1000 {
		return t.table.Turns
	}
	var always []int
	for at, i := range t.items {
		if i.Quota == share.Whole {
			always = append(always, at)
		}
	}
	return append(slices.Clone(t.table.Turns), slot.Turn{Members: always, Duration: rest})
}

// stackShares draws the shares that run in one turn on top of each other.
func (t turns) stackShares(p *picture, members []int, left, right int) {
	sizes := make([]int64, len(members))
	for k, who := range members {
		sizes[k] = int64(t.items[who].SM)
	}
	at := edges(sizes, int64(share.Whole), p.height)
	for k, who := range members {
		p.addBlock(block{who, left, right, at[k], at[k+1]})
	}
}
