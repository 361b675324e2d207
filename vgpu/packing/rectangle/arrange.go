package rectangle

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Arrange packs the boxes on one empty slice and returns their rectangles in input order, or false. The result depends on the multiset of
// boxes only: in whatever order they are listed, they get the same rectangles. Equal boxes get theirs in the order of the list.
//
// Arrange packs greedily by descending area first (F27). If that fails, it tries three other fixed orders and then a search. If it returns
// true, the boxes fit. If it returns false, they may fit nevertheless. Measured on nearly full slices cut at random, 3000 sets for each
// size: it missed none up to eight boxes, under 0.5 % at twelve, 0.4-3.2 % at sixteen. So the result is not monotone: when a box is removed
// from a set that was arranged, the others still fit, but Arrange may not find it. The slice must then count as full, not as broken.
//
// Most calls take microseconds. An unsuccessful search takes about half a millisecond for sixteen boxes, and a full cluster causes many:
// callers should cache results by multiset.
func Arrange(boxes []Box) ([]Rect, bool) {
	if !isPlausible(boxes) {
		return nil, false
	}
	if rects, ok := packGreedily(boxes, byArea); ok {
		return rects, true
	}
	if isProvenTooLarge(boxes) {
		return nil, false
	}
	for _, by := range []boxOrder{byQuota, bySM, byLongerSide} {
		if rects, ok := packGreedily(boxes, by); ok {
			return rects, true
		}
	}
	return searchBothWays(boxes)
}

// isPlausible reports whether each box fits an empty slice and the areas add up to no more than that of the slice.
func isPlausible(boxes []Box) bool {
	var sum share.Area
	for _, b := range boxes {
		if sum += b.Area(); !b.isValid() || sum > share.WholeArea {
			return false
		}
	}
	return true
}

// boxOrder compares two boxes by their sides only, so that a packing depends on the multiset of boxes and not on the order of the list.
type boxOrder func(a, b Box) int

// byArea compares by descending area, as F27 and F28 require. The other orders find most of the packings that it misses.
func byArea(a, b Box) int { return cmp.Or(cmp.Compare(b.Area(), a.Area()), byQuota(a, b)) }

func byQuota(a, b Box) int { return cmp.Or(cmp.Compare(b.W, a.W), cmp.Compare(b.H, a.H)) }

func bySM(a, b Box) int { return cmp.Or(cmp.Compare(b.H, a.H), cmp.Compare(b.W, a.W)) }

func byLongerSide(a, b Box) int {
	return cmp.Or(cmp.Compare(max(b.W, b.H), max(a.W, a.H)), byArea(a, b))
}

// sorted returns the indices of the boxes in sorted order. It is stable: equal boxes keep the order in which they were listed.
func (o boxOrder) sorted(boxes []Box) []int {
	at := make([]int, len(boxes))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(i, j int) int { return o(boxes[i], boxes[j]) })
	return at
}

// packGreedily places the boxes one by one in the given order, each in the best free rectangle, and returns their rectangles in input
// order. It returns false if a box fits no free rectangle.
func packGreedily(boxes []Box, by boxOrder) ([]Rect, bool) {
	f, rects := freeList{wholeSlice}, make([]Rect, len(boxes))
	for _, i := range by.sorted(boxes) {
		r, ok := f.bestFor(boxes[i])
		if !ok {
			return nil, false
		}
		rects[i] = Rect{X: r.X, Y: r.Y, Box: boxes[i]}
		f = f.occupy(rects[i])
	}
	return rects, true
}

// isProvenTooLarge reports whether a bound proves that the boxes do not fit a slice. It saves the search on most sets that do not fit, such
// as three boxes of 60 % SM (F31).
//
// Beside a side longer than 1000-e there is no room for another of e or more. So once all sides shorter than e are ignored, the longer side
// may count as 1000. Boxes changed in this way still fit wherever the true ones do, in each direction independently (Fekete and Schepers,
// conservative scales). If the area of the changed boxes exceeds the slice, the true boxes do not fit.
func isProvenTooLarge(boxes []Box) bool {
	for _, w := range thresholds(boxes, func(b Box) share.PerMille { return b.W }) {
		for _, h := range thresholds(boxes, func(b Box) share.PerMille { return b.H }) {
			if scaledArea(boxes, w, h) > share.WholeArea {
				return true
			}
		}
	}
	return false
}

// thresholds returns the values of e that isProvenTooLarge tries: 0 and, for each side longer than half the slice, the least e with which
// that side counts as 1000.
func thresholds(boxes []Box, side func(Box) share.PerMille) []share.PerMille {
	out := []share.PerMille{0}
	for _, b := range boxes {
		if s := side(b); 2*s > share.Whole {
			out = append(out, share.Whole+1-s)
		}
	}
	return out
}

func scaledArea(boxes []Box, w, h share.PerMille) share.Area {
	var sum share.Area
	for _, b := range boxes {
		sum += Box{W: scaled(b.W, w), H: scaled(b.H, h)}.Area()
	}
	return sum
}

func scaled(side, e share.PerMille) share.PerMille {
	switch {
	case side < e:
		return 0
	case side > share.Whole-e:
		return share.Whole
	}
	return side
}
