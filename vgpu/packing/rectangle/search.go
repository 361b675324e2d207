package rectangle

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// budget is the number of steps of one search, of which Arrange makes at most eight. It is a count, not a time, so that every
// caller gets the same result. Eight short searches in different orders find more than one long one: of 636 full sets of 16 boxes
// that no greedy order packs, 583 with 8 x 250 steps, 525 with 2 x 2000.
const budget = 250

// find searches for a packing bottom-up, and then from the left, which is easier for some sets.
func find(boxes []Box) ([]Rect, bool) {
	if rects, ok := climb(boxes); ok {
		return rects, true
	}
	turned := slices.Clone(boxes)
	for i, b := range boxes {
		turned[i] = Box{W: b.H, H: b.W}
	}
	rects, ok := climb(turned)
	for i, r := range rects {
		rects[i] = Rect{X: r.Y, Y: r.X, Box: boxes[i]}
	}
	return rects, ok
}

// climb tries the orders until one search finds a packing or has visited its whole tree, which shows that no order has one. Tall
// boxes first finds most.
func climb(boxes []Box) ([]Rect, bool) {
	for _, by := range []order{bySM, byLongerSide, byArea, byQuota} {
		s := newSearch(boxes, by)
		if s.from(skyline{{}}, len(boxes)) {
			return s.inOrder(), true
		}
		if s.steps < budget {
			break
		}
	}
	return nil, false
}

// search fills the lowest step of a skyline: by each box that is left, at its left end, or by nothing. Where to go on is
// never a choice, which keeps the tree small. It misses packings in which a box needs to stand away from the left end of
// its step, under the overhang of another; on small sets the tests find none that is missed.
type search struct {
	at    []int  // index in the input of each rectangle
	rects []Rect // in search order; those in use have their place
	used  []bool
	area  share.Area // of those not in use
	steps int
}

func newSearch(boxes []Box, by order) *search {
	s := &search{at: by.sorted(boxes), used: make([]bool, len(boxes))}
	for _, i := range s.at {
		s.rects = append(s.rects, Rect{Box: boxes[i]})
		s.area += boxes[i].Area()
	}
	return s
}

func (s *search) from(line skyline, left int) bool {
	if left == 0 {
		return true
	}
	if s.steps == budget {
		return false
	}
	s.steps++
	if line.above(s.leastHeight()) < s.area {
		return false
	}
	low := line.lowest()
	for k := range s.rects {
		if s.worth(k, line, low) && s.try(k, line, low, left) {
			return true
		}
	}
	return len(line) > 1 && s.from(line.filled(low), left)
}

// worth reports whether the box fits the step and no equal box was just tried there.
func (s *search) worth(k int, line skyline, low int) bool {
	b, p := s.rects[k].Box, line[low]
	if s.used[k] || p.x+b.W > line.end(low) || p.y+b.H > share.Whole {
		return false
	}
	return k == 0 || s.used[k-1] || s.rects[k-1].Box != b
}

func (s *search) try(k int, line skyline, low, left int) bool {
	r := &s.rects[k]
	r.X, r.Y, s.used[k] = line[low].x, line[low].y, true
	s.area -= r.Area()
	if s.from(line.raised(low, r.W, r.top()), left-1) {
		return true
	}
	s.used[k] = false
	s.area += r.Area()
	return false
}

func (s *search) leastHeight() share.PerMille {
	least := share.Whole
	for k, r := range s.rects {
		if !s.used[k] {
			least = min(least, r.H)
		}
	}
	return least
}

func (s *search) inOrder() []Rect {
	out := make([]Rect, len(s.rects))
	for k, i := range s.at {
		out[i] = s.rects[k]
	}
	return out
}
