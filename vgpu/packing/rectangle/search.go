package rectangle

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// maxSteps bounds the steps of one search, of which Arrange makes at most eight. It is a count and not a time, so that every caller gets
// the same result. Eight short searches in different orders find more than two long ones: of 636 full sets of 16 boxes that no greedy
// order packs, 583 with 8 x 250 steps, 525 with 2 x 2000.
const maxSteps = 250

// searchBothWays searches for a packing from the bottom up and, if there is none, from left to right, which is easier for some sets.
func searchBothWays(boxes []Box) ([]Rect, bool) {
	if rects, ok := searchOrders(boxes); ok {
		return rects, true
	}
	turned := slices.Clone(boxes)
	for i, b := range boxes {
		turned[i] = Box{W: b.H, H: b.W}
	}
	rects, ok := searchOrders(turned)
	for i, r := range rects {
		rects[i] = Rect{X: r.Y, Y: r.X, Box: boxes[i]}
	}
	return rects, ok
}

// searchOrders searches with the boxes in each order until a packing is found. It stops early if a search was exhaustive, because then no
// order has a packing. Tall boxes come first, because that order finds the most packings.
func searchOrders(boxes []Box) ([]Rect, bool) {
	for _, by := range []boxOrder{bySM, byLongerSide, byArea, byQuota} {
		s := newSearch(boxes, by)
		if s.extend(skyline{{}}, len(boxes)) {
			return s.inInputOrder(), true
		}
		if s.steps < maxSteps {
			break
		}
	}
	return nil, false
}

// search is a backtracking search that fills the lowest step of a skyline: it puts each unplaced box in turn at the left end of the step,
// or leaves the step empty. The step to fill is never a choice, which keeps the search tree small. The search misses packings in which a
// box has to stand away from the left end of its step, under the overhang of another box; on small sets the tests find no such packing.
type search struct {
	at    []int  // for each rectangle, the index of its box in the input
	rects []Rect // in search order; those of used boxes have their position
	used  []bool
	area  share.Area // of the unused boxes together
	steps int
}

func newSearch(boxes []Box, by boxOrder) *search {
	s := &search{at: by.sorted(boxes), used: make([]bool, len(boxes))}
	for _, i := range s.at {
		s.rects = append(s.rects, Rect{Box: boxes[i]})
		s.area += boxes[i].Area()
	}
	return s
}

func (s *search) extend(line skyline, left int) bool {
	if left == 0 {
		return true
	}
	if s.steps == maxSteps {
		return false
	}
	s.steps++
	if line.areaAbove(s.minHeight()) < s.area {
		return false
	}
	low := line.lowest()
	for k := range s.rects {
		if s.canTry(k, line, low) && s.tryBox(k, line, low, left) {
			return true
		}
	}
	return len(line) > 1 && s.extend(line.filled(low), left)
}

// canTry reports whether unplaced box k fits the lowest step of the skyline, and no equal box was tried there just before.
func (s *search) canTry(k int, line skyline, low int) bool {
	b, p := s.rects[k].Box, line[low]
	if s.used[k] || p.x+b.W > line.stepEnd(low) || p.y+b.H > share.Whole {
		return false
	}
	return k == 0 || s.used[k-1] || s.rects[k-1].Box != b
}

func (s *search) tryBox(k int, line skyline, low, left int) bool {
	r := &s.rects[k]
	r.X, r.Y, s.used[k] = line[low].x, line[low].y, true
	s.area -= r.Area()
	if s.extend(line.raised(low, r.W, r.top()), left-1) {
		return true
	}
	s.used[k] = false
	s.area += r.Area()
	return false
}

func (s *search) minHeight() share.PerMille {
	least := share.Whole
	for k, r := range s.rects {
		if !s.used[k] {
			least = min(least, r.H)
		}
	}
	return least
}

func (s *search) inInputOrder() []Rect {
	out := make([]Rect, len(s.rects))
	for k, i := range s.at {
		out[i] = s.rects[k]
	}
	return out
}

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
