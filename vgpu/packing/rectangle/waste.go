package rectangle

import (
	"cmp"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Waste is what a box leaves unused of a free rectangle; less is a better match.
type Waste struct {
	Area      share.Area     // of the rectangle less that of the box: Algorithm 2, line 1
	ShortSide share.PerMille // the smaller of what is left over in width and in height
}

func wasteOf(b Box, r Rect) Waste {
	return Waste{Area: r.Area() - b.Area(), ShortSide: min(r.W-b.W, r.H-b.H)}
}

// Less reports whether w is the better match: the smaller area left, then the smaller shorter side (F26).
func (w Waste) Less(o Waste) bool { return w.compare(o) < 0 }

func (w Waste) compare(o Waste) int {
	return cmp.Or(cmp.Compare(w.Area, o.Area), cmp.Compare(w.ShortSide, o.ShortSide))
}
