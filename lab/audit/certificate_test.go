package audit

import (
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

func shareOf(sm, quota share.PerMille) share.Share {
	return share.Share{SMRequest: sm, SMLimit: sm, QuotaRequest: quota, QuotaLimit: quota, Memory: share.MiB}
}

// turns returns a table of one window from its turns.
func turns(list ...slot.Turn) slot.Table { return slot.Table{Window: window, Turns: list} }

func TestVerifyTable(t *testing.T) {
	const ms = time.Millisecond
	shares := []share.Share{shareOf(200, 1000), shareOf(500, 400), shareOf(500, 400)}
	good := turns(slot.Turn{Members: []int{0, 1}, Duration: 40 * ms}, slot.Turn{Members: []int{0, 2}, Duration: 40 * ms})
	if err := verifyTable(shares, good, 50); err != nil {
		t.Fatalf("a sound table: %v", err)
	}
	for name, bad := range map[string]slot.Table{
		"empty":          turns(),
		"other window":   {Window: 2 * window, Turns: good.Turns},
		"too many SMs":   turns(slot.Turn{Members: []int{0, 1, 2}, Duration: 80 * ms}),
		"short":          turns(slot.Turn{Members: []int{0, 1}, Duration: 39 * ms}, good.Turns[1]),
		"full share out": turns(slot.Turn{Members: []int{1}, Duration: 40 * ms}, good.Turns[1]),
		"too long":       turns(good.Turns[0], slot.Turn{Members: []int{0, 2}, Duration: 56 * ms}),
		"member twice":   turns(slot.Turn{Members: []int{0, 1, 1}, Duration: 20 * ms}, good.Turns[1]),
		"no such member": turns(good.Turns[0], good.Turns[1], slot.Turn{Members: []int{3}, Duration: ms}),
		"negative":       turns(good.Turns[0], good.Turns[1], slot.Turn{Members: []int{0}, Duration: -ms}),
	} {
		t.Run(name, func(t *testing.T) {
			if err := verifyTable(shares, bad, 50); err == nil {
				t.Errorf("the table passes")
			} else {
				t.Logf("%v", err)
			}
		})
	}
}

// TestOneTurnNeedsNoReserve: two shares that run together may have the whole window.
func TestOneTurnNeedsNoReserve(t *testing.T) {
	shares := []share.Share{shareOf(500, 990), shareOf(500, 1000)}
	if err := verifyTable(shares, turns(slot.Turn{Members: []int{0, 1}, Duration: window}), 50); err != nil {
		t.Error(err)
	}
	long := turns(slot.Turn{Members: []int{0, 1}, Duration: window + 1})
	if err := verifyTable(shares, long, 50); err == nil {
		t.Error("a turn above the window passes")
	}
}

func TestVerifyRectangles(t *testing.T) {
	shares := []share.Share{shareOf(600, 500), shareOf(600, 500)}
	box := rectangle.Box{W: 500, H: 600}
	good := []rectangle.Rect{{Box: box}, {X: 500, Box: box}}
	if err := verifyRectangles(shares, good); err != nil {
		t.Fatalf("a sound packing: %v", err)
	}
	for name, bad := range map[string][]rectangle.Rect{
		"one missing": good[:1],
		"overlap":     {good[0], {X: 499, Box: box}},
		"same place":  {good[0], good[0]},
		"too wide":    {good[0], {X: 501, Box: box}},
		"too high":    {good[0], {X: 500, Y: 401, Box: box}},
		"negative":    {{X: -1, Box: box}, good[1]},
		"turned":      {good[0], {X: 500, Box: rectangle.Box{W: 600, H: 500}}},
		"smaller":     {good[0], {X: 500, Box: rectangle.Box{W: 500, H: 599}}},
	} {
		t.Run(name, func(t *testing.T) {
			if err := verifyRectangles(shares, bad); err == nil {
				t.Errorf("the packing passes")
			} else {
				t.Logf("%v", err)
			}
		})
	}
}
