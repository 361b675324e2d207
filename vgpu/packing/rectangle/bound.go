package rectangle

import "github.com/gshare-dev/gshare/vgpu/share"

// isProvenTooLarge reports whether a bound proves that the boxes do not fit a slice. It saves the search on most sets that do not fit, such
// as three boxes of 60 % SM (F31).
//
// A side longer than 1000-e has no side of e or more beside it. So if all sides shorter than e are ignored, that side may count as 1000.
// Boxes changed in this way still fit wherever the true ones do, in each direction independently (Fekete and Schepers, conservative
// scales). If the area of the changed boxes exceeds the slice, the true boxes do not fit.
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

// thresholds returns the values of e to try for isProvenTooLarge: 0 and, for each side longer than half the slice, the least e that makes
// the side count as 1000.
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
