package rectangle

import (
	"cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Box is the request of one share as a rectangle: W (width) of the window, H (height) of the SMs. Boxes are not rotated, because time and
// SMs are different resources.
type Box struct{ W, H share.PerMille }

// BoxOf returns the box of a share. Its sides are the guaranteed requests, because limits may be oversubscribed (F24).
func BoxOf(s share.Share) Box { return Box{W: s.QuotaRequest, H: s.SMRequest} }

// Area returns the SM-time of the box. FaST-GShare calls it second-cores.
func (b Box) Area() share.Area { return share.Area(b.W) * share.Area(b.H) }

// isValid reports whether the box is neither empty nor larger than a slice, so that no sum of sides overflows.
func (b Box) isValid() bool {
	return b.W > 0 && b.H > 0 && b.W <= share.Whole && b.H <= share.Whole
}

func (b Box) fitsIn(o Box) bool { return b.W <= o.W && b.H <= o.H }

// Rect is a box with a position: X is its start in the window, Y its lowest SM, both in per mille.
type Rect struct {
	X, Y share.PerMille
	Box
}

// wholeSlice is the rectangle of an empty slice.
var wholeSlice = Rect{Box: Box{W: share.Whole, H: share.Whole}}

func (r Rect) right() share.PerMille { return r.X + r.W }
func (r Rect) top() share.PerMille   { return r.Y + r.H }

func (r Rect) isInside(o Rect) bool {
	return r.X >= o.X && r.Y >= o.Y && r.right() <= o.right() && r.top() <= o.top()
}

// Overlaps reports whether two rectangles overlap. Touching edges do not count.
func (r Rect) Overlaps(o Rect) bool {
	return r.X < o.right() && o.X < r.right() && r.Y < o.top() && o.Y < r.top()
}

// compareByPosition orders rectangles from the bottom up, then from left to right (F26).
func compareByPosition(a, b Rect) int {
	return cmp.Or(cmp.Compare(a.Y, b.Y), cmp.Compare(a.X, b.X), cmp.Compare(a.H, b.H), cmp.Compare(a.W, b.W))
}
