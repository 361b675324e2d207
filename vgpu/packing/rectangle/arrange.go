package rectangle

import "github.com/gshare-dev/gshare/vgpu/share"

// Arrange packs the boxes on one empty slice and returns their rectangles in input order. It is a function of the multiset
// of boxes: listed in any other order, they get the same rectangles. Equal boxes get theirs in the order of the list.
//
// The area-descending order of F27 comes first. Where it fails, three other orders and then a search are tried, each of
// them fixed. A true answer is a packing. A false answer may be wrong. Measured on nearly full
// slices cut at random, 3000 sets a row: no miss up to eight boxes, under 0.5 % at twelve, 0.4-3.2 % at sixteen. So the
// answer is not monotone: when a box leaves a set that was arranged, what remains fits but may be missed. Then the slice
// is to count as full, not as broken.
//
// Most answers take microseconds. A search in vain takes about half a millisecond for sixteen boxes, and a full cluster
// asks for many: callers should remember answers by multiset.
func Arrange(boxes []Box) ([]Rect, bool) {
	if !plausible(boxes) {
		return nil, false
	}
	if rects, ok := greedy(boxes, byArea); ok {
		return rects, true
	}
	if exceeds(boxes) {
		return nil, false
	}
	for _, by := range []order{byQuota, bySM, byLongerSide} {
		if rects, ok := greedy(boxes, by); ok {
			return rects, true
		}
	}
	return find(boxes)
}

// plausible reports whether each box fits an empty slice and their areas add up to no more than it.
func plausible(boxes []Box) bool {
	var sum share.Area
	for _, b := range boxes {
		if sum += b.Area(); !b.valid() || sum > share.WholeArea {
			return false
		}
	}
	return true
}
