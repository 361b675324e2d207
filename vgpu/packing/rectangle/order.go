package rectangle

import (
	"cmp"
	"slices"
)

// order compares boxes by their sides only, so that a packing depends on the multiset of boxes and not on the order of the list.
type order func(a, b Box) int

// byArea is the order of F27 and F28; the other orders find most of what it misses.
func byArea(a, b Box) int { return cmp.Or(cmp.Compare(b.Area(), a.Area()), byQuota(a, b)) }

func byQuota(a, b Box) int { return cmp.Or(cmp.Compare(b.W, a.W), cmp.Compare(b.H, a.H)) }

func bySM(a, b Box) int { return cmp.Or(cmp.Compare(b.H, a.H), cmp.Compare(b.W, a.W)) }

func byLongerSide(a, b Box) int {
	return cmp.Or(cmp.Compare(max(b.W, b.H), max(a.W, a.H)), byArea(a, b))
}

// sorted returns the indices of boxes in the order. It is stable: equal boxes keep the order in which they were listed.
func (o order) sorted(boxes []Box) []int {
	at := make([]int, len(boxes))
	for i := range at {
		at[i] = i
	}
	slices.SortStableFunc(at, func(i, j int) int { return o(boxes[i], boxes[j]) })
	return at
}

// greedy places the boxes one by one by the rule of Place and returns their rectangles in input order, or false.
func greedy(boxes []Box, by order) ([]Rect, bool) {
	f, rects := free{whole}, make([]Rect, len(boxes))
	for _, i := range by.sorted(boxes) {
		r, ok := f.best(boxes[i])
		if !ok {
			return nil, false
		}
		rects[i] = Rect{X: r.X, Y: r.Y, Box: boxes[i]}
		f = f.without(rects[i])
	}
	return rects, true
}
