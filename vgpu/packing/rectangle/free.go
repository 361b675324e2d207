package rectangle

import (
	"cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// free is the free-rectangle list of one slice (FG-112). Its rectangles may overlap each other, never a placed one, and
// none lies inside another.
type freeList []Rect

// best returns the free rectangle that holds b with least waste (FG-113). It must be at least as large as b in both
// directions: the printed line 1 has the inequalities the wrong way round (F20).
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

// better breaks ties of waste by the lower (y, x), so that the list's own order never matters (F26).
func isBetter(b Box, r, than Rect) bool {
	if c := wasteOf(b, r).compare(wasteOf(b, than)); c != 0 {
		return c < 0
	}
	return compareByPosition(r, than) < 0
}

// without returns the free rectangles after p is occupied: each that overlaps p is replaced by its pieces (FG-116). Printed lines
// 8-13 only add the pieces and keep offering what is occupied (F21). The rectangle that p is placed in is no special case: p, at
// its bottom-left corner, leaves just the two maximal pieces of FG-115.
func (f freeList) without(p Rect) freeList {
	out := make(freeList, 0, len(f)+4)
	for _, r := range f {
		if !r.Overlaps(p) {
			out = append(out, r)
		}
	}
	for _, r := range f {
		if r.Overlaps(p) {
			out = out.withPieces(r, p)
		}
	}
	return out
}

// withPieces appends the up to four maximal pieces of r around p. There is no piece where p reaches an edge of r; the printed
// Subdivide always returns three or four (F23).
func (f freeList) withPieces(r, p Rect) freeList {
	f = f.with(rectBetween(r.X, r.Y, p.X, r.top()))
	f = f.with(rectBetween(p.right(), r.Y, r.right(), r.top()))
	f = f.with(rectBetween(r.X, r.Y, r.right(), p.Y))
	return f.with(rectBetween(r.X, p.top(), r.right(), r.top()))
}

// span returns the rectangle between two corners, which is empty if a side is zero or less.
func rectBetween(x, y, right, top share.PerMille) Rect {
	return Rect{X: x, Y: y, Box: Box{W: right - x, H: top - y}}
}

// with adds r and removes contained rectangles (FG-117). Of two equal rectangles one stays: printed lines 15-19 compare a
// rectangle with itself and remove both (F22).
func (f freeList) with(r Rect) freeList {
	if !r.isValid() {
		return f
	}
	for _, o := range f {
		if r.isInside(o) {
			return f
		}
	}
	return append(f.notInside(r), r)
}

// notInside removes the rectangles inside r. It reuses the memory of the list, which no other list shares.
func (f freeList) notInside(r Rect) freeList {
	kept := f[:0]
	for _, o := range f {
		if !o.isInside(r) {
			kept = append(kept, o)
		}
	}
	return kept
}

// Waste is what a box leaves unused of a free rectangle; less is a better match.
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
