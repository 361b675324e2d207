package rectangle

import "github.com/gshare-dev/gshare/vgpu/share"

// skylineStep is the left end and the height of one step of a skyline.
type skylineStep struct{ x, y share.PerMille }

// skyline is the upper edge of the placed boxes, from left to right. Each step reaches to the next one, the last step to the edge of the
// slice. The area below it is placed or given up.
type skyline []skylineStep

func (s skyline) stepEnd(i int) share.PerMille {
	if i+1 < len(s) {
		return s[i+1].x
	}
	return share.Whole
}

// lowest returns the index of the leftmost of the lowest steps.
func (s skyline) lowest() int {
	low := 0
	for i, p := range s {
		if p.y < s[low].y {
			low = i
		}
	}
	return low
}

// areaAbove returns the free area above those steps on which a box of height h still fits.
func (s skyline) areaAbove(h share.PerMille) share.Area {
	var sum share.Area
	for i, p := range s {
		if p.y+h <= share.Whole {
			sum += Box{W: s.stepEnd(i) - p.x, H: share.Whole - p.y}.Area()
		}
	}
	return sum
}

// raised returns the skyline after a box of width w is placed at the left end of step i with its top at y. Adjoining steps of height y are
// joined.
func (s skyline) raised(i int, w, y share.PerMille) skyline {
	out := append(make(skyline, 0, len(s)+1), s[:i]...)
	if i == 0 || s[i-1].y != y {
		out = append(out, skylineStep{s[i].x, y})
	}
	if x := s[i].x + w; x < s.stepEnd(i) {
		out = append(out, skylineStep{x, s[i].y})
	} else if i+1 < len(s) && s[i+1].y == y {
		i++
	}
	return append(out, s[i+1:]...)
}

// filled returns the skyline with step i raised to the lower of its neighbours, which gives up the area between.
func (s skyline) filled(i int) skyline {
	y := share.Whole
	if i > 0 {
		y = s[i-1].y
	}
	if i+1 < len(s) {
		y = min(y, s[i+1].y)
	}
	return s.raised(i, s.stepEnd(i)-s[i].x, y)
}
