package audit

import (
	"errors"
	"fmt"
	"time"

	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// window is the window length for which slot tables are computed.
const window = 100 * time.Millisecond

var errNoTable = errors.New("the shares fit no table of turns")

// proveSlots computes a slot table for the shares, verifies it, and returns an error if there is none.
func proveSlots(shares []share.Share, reserve share.PerMille) error {
	table, ok := slot.Solve(itemsOf(shares), window, reserve)
	if !ok {
		return errNoTable
	}
	return verifyTable(shares, table, reserve)
}

func itemsOf(shares []share.Share) []slot.Item {
	items := make([]slot.Item, len(shares))
	for i, s := range shares {
		items[i] = itemOf(s)
	}
	return items
}

func itemOf(s share.Share) slot.Item { return slot.Item{SM: s.SMRequest, Quota: s.QuotaRequest} }

// verifyTable returns an error if a slot table does not serve every request within a window. Durations are whole nanoseconds, so it
// tolerates n nanoseconds in a sum over n shares.
func verifyTable(shares []share.Share, t slot.Table, reserve share.PerMille) error {
	var sum time.Duration
	got := make([]time.Duration, len(shares))
	turns := make([]int, len(shares))
	for k, turn := range t.Turns {
		if err := verifyTurn(shares, turn); err != nil {
			return fmt.Errorf("turn %d: %w", k, err)
		}
		sum += turn.Duration
		for _, i := range turn.Members {
			got[i] += turn.Duration
			turns[i]++
		}
	}
	if most := maxTotal(t, len(shares), reserve); sum > most {
		return fmt.Errorf("the turns take %v, more than %v", sum, most)
	}
	return verifyQuotas(shares, t, got, turns)
}

// maxTotal returns the time that all turns of a table may take together. A single turn never switches and needs no reserve.
func maxTotal(t slot.Table, shares int, reserve share.PerMille) time.Duration {
	if len(t.Turns) <= 1 {
		return window
	}
	left := window * time.Duration(share.Whole-reserve) / time.Duration(share.Whole)
	return min(window, left+time.Duration(shares))
}

// verifyTurn returns an error if the members of a turn are unknown, repeated, or need more SMs than the slice has.
func verifyTurn(shares []share.Share, turn slot.Turn) error {
	if turn.Duration <= 0 {
		return fmt.Errorf("it takes %v", turn.Duration)
	}
	var sms share.PerMille
	for k, i := range turn.Members {
		if i < 0 || i >= len(shares) || k > 0 && turn.Members[k-1] >= i {
			return fmt.Errorf("its members %v are not ascending indices below %d", turn.Members, len(shares))
		}
		sms += shares[i].SMRequest
	}
	if sms > share.Whole {
		return fmt.Errorf("%d per mille of SMs run at once", sms)
	}
	return nil
}

// verifyQuotas returns an error if a share runs for less than its quota. A share of full quota also runs between turns, so it must be in
// every turn.
func verifyQuotas(shares []share.Share, t slot.Table, got []time.Duration, turns []int) error {
	if t.Window != window {
		return fmt.Errorf("the window is %v, not %v", t.Window, window)
	}
	for i, s := range shares {
		due := window*time.Duration(s.QuotaRequest)/time.Duration(share.Whole) - time.Duration(len(shares))
		switch {
		case s.QuotaRequest == share.Whole && (turns[i] == 0 || turns[i] < len(t.Turns)):
			return fmt.Errorf("share %d has full quota and is in %d of %d turns", i, turns[i], len(t.Turns))
		case s.QuotaRequest < share.Whole && got[i] < due:
			return fmt.Errorf("share %d runs for %v, and is due %v", i, got[i], due)
		}
	}
	return nil
}

// proveRectangles packs the shares as rectangles, verifies the packing, and returns an error if there is none. The search is not
// exhaustive; the error says whether a packing might exist nevertheless.
func proveRectangles(shares []share.Share) error {
	rects, ok := rectangle.Arrange(boxesOf(shares))
	if ok {
		return verifyRectangles(shares, rects)
	}
	if proveSlots(shares, 0) != nil {
		return fmt.Errorf("the %d rectangles fit in no arrangement", len(shares))
	}
	return fmt.Errorf("no arrangement of the %d rectangles was found; there might be one", len(shares))
}

func boxesOf(shares []share.Share) []rectangle.Box {
	boxes := make([]rectangle.Box, len(shares))
	for i, s := range shares {
		boxes[i] = rectangle.BoxOf(s)
	}
	return boxes
}

// verifyRectangles returns an error if rectangles differ in size from their shares, leave the slice or overlap.
func verifyRectangles(shares []share.Share, rects []rectangle.Rect) error {
	if len(rects) != len(shares) {
		return fmt.Errorf("%d rectangles for %d shares", len(rects), len(shares))
	}
	for i, r := range rects {
		if r.W != shares[i].QuotaRequest || r.H != shares[i].SMRequest {
			return fmt.Errorf("rectangle %d is %d x %d, its share %v", i, r.W, r.H, shares[i])
		}
		if r.X < 0 || r.Y < 0 || r.X+r.W > share.Whole || r.Y+r.H > share.Whole {
			return fmt.Errorf("rectangle %d leaves the slice", i)
		}
		for j := range i {
			if !areDisjoint(r, rects[j]) {
				return fmt.Errorf("rectangles %d and %d overlap", j, i)
			}
		}
	}
	return nil
}

// areDisjoint reports whether two rectangles do not overlap.
func areDisjoint(a, b rectangle.Rect) bool {
	return a.X+a.W <= b.X || b.X+b.W <= a.X || a.Y+a.H <= b.Y || b.Y+b.H <= a.Y
}
