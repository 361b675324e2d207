package audit

import (
	"fmt"

	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/share"
)

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
