package rectangle

import (
	"cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// freeList is the list of free rectangles of one slice. They may overlap each other, but never a placed rectangle, and none lies
// inside another.
type freeList []Rect

// bestFor returns the free rectangle that holds b with the least waste, or false. That rectangle must be at least as large as b in
// both directions: line 1 of the printed Algorithm 2 has the inequalities reversed (F20).
func (f freeList) bestFor(b Box) (bestFor Rect, found bool) {
	if !b.isValid() {
		return Rect{}, false
	}
	for _, r := range f {
		if b.fitsIn(r.Box) && (!found || isBetter(b, r, bestFor)) {
			bestFor, found = r, true
		}
	}
	return bestFor, found
}

// isBetter reports whether b leaves less waste in free rectangle r than in the other one. If the waste is equal, the lower and then the
// leftmost rectangle is better, so that the order of the list does not matter (F26).
func isBetter(b Box, r, than Rect) bool {
	if c := wasteOf(b, r).compare(wasteOf(b, than)); c != 0 {
		return c < 0
	}
	return compareByPosition(r, than) < 0
}

// occupy returns the free rectangles after p is occupied: each one that overlaps p is replaced by its remaining parts. Lines 8-13
// of the printed Algorithm 2 add the parts but keep the rectangle, and so keep offering what is occupied (F21). The free rectangle in whose
// bottom-left corner p is placed is no special case: its remaining parts are the paper's two maximal rectangles.
func (f freeList) occupy(p Rect) freeList {
	out := make(freeList, 0, len(f)+4)
	for _, r := range f {
		if !r.Overlaps(p) {
			out = append(out, r)
		}
	}
	for _, r := range f {
		if r.Overlaps(p) {
			out = out.addPieces(r, p)
		}
	}
	return out
}

// addPieces appends the maximal rectangles that remain of r beside p, at most four. There is none on a side where p reaches the edge of r;
// the printed Subdivide always returns three or four (F23).
func (f freeList) addPieces(r, p Rect) freeList {
	f = f.add(rectBetween(r.X, r.Y, p.X, r.top()))
	f = f.add(rectBetween(p.right(), r.Y, r.right(), r.top()))
	f = f.add(rectBetween(r.X, r.Y, r.right(), p.Y))
	return f.add(rectBetween(r.X, p.top(), r.right(), r.top()))
}

// rectBetween returns the rectangle between two corners. It is empty if a side is zero or less.
func rectBetween(x, y, right, top share.PerMille) Rect {
	return Rect{X: x, Y: y, Box: Box{W: right - x, H: top - y}}
}

// add appends r unless it lies inside a listed rectangle, and removes those that lie inside r. Of two equal rectangles one stays:
// lines 15-19 of the printed Algorithm 2 compare a rectangle with itself and remove both (F22).
func (f freeList) add(r Rect) freeList {
	if !r.isValid() {
		return f
	}
	for _, o := range f {
		if r.isInside(o) {
			return f
		}
	}
	return append(f.removeInside(r), r)
}

// removeInside removes the rectangles that lie inside r. It reuses the memory of the list, which no other list shares.
func (f freeList) removeInside(r Rect) freeList {
	kept := f[:0]
	for _, o := range f {
		if !o.isInside(r) {
			kept = append(kept, o)
		}
	}
	return kept
}

// Waste is the part of a free rectangle that a box would leave unused. The less, the better the box fits.
type Waste struct {
	Area      share.Area     // of the rectangle less that of the box: Algorithm 2, line 1
	ShortSide share.PerMille // the smaller of what is left over in width and in height
}

func wasteOf(b Box, r Rect) Waste {
	return Waste{Area: r.Area() - b.Area(), ShortSide: min(r.W-b.W, r.H-b.H)}
}

func (w Waste) compare(o Waste) int {
	return cmp.Or(cmp.Compare(w.Area, o.Area), cmp.Compare(w.ShortSide, o.ShortSide))
}
