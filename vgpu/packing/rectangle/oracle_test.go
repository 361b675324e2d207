package rectangle

import (
	"math/rand/v2"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// exhaustive tries every box at every grid point, with an occupancy bitmap: it is slow and obvious, and shares nothing with
// the code that it checks. cells is the side of the grid, at most 8. Only mirror images of the first box's place are left
// out.
func exhaustive(boxes []Box, cells int) bool {
	unit := share.Whole / share.PerMille(cells)
	var try func(i int, taken uint64) bool
	try = func(i int, taken uint64) bool {
		if i == len(boxes) {
			return true
		}
		w, h := int(boxes[i].W/unit), int(boxes[i].H/unit)
		xs, ys := cells-w+1, cells-h+1
		if i == 0 {
			xs, ys = (xs+1)/2, (ys+1)/2
		}
		for y := range ys {
			for x := range xs {
				if m := mask(x, y, w, h, cells); m&taken == 0 && try(i+1, taken|m) {
					return true
				}
			}
		}
		return false
	}
	return try(0, 0)
}

func mask(x, y, w, h, cells int) uint64 {
	var m uint64
	for j := y; j < y+h; j++ {
		m |= (1<<w - 1) << (j*cells + x)
	}
	return m
}

// maximalFree finds every maximal free rectangle on a grid of tenths by examining each cell.
func maximalFree(placed []Placed) map[Rect]bool {
	var all []Rect
	for _, r := range everyRect {
		if !meetsAny(r, placed) {
			all = append(all, r)
		}
	}
	out := map[Rect]bool{}
	for _, r := range all {
		if !insideAnother(r, all) {
			out[r] = true
		}
	}
	return out
}

var everyRect = func() (all []Rect) {
	for x := 0; x < 10; x++ {
		for y := 0; y < 10; y++ {
			for w := 1; x+w <= 10; w++ {
				for h := 1; y+h <= 10; h++ {
					all = append(all, rect(100*x, 100*y, 100*w, 100*h))
				}
			}
		}
	}
	return all
}()

func meetsAny(r Rect, placed []Placed) bool {
	for _, p := range placed {
		if r.X < p.X+p.W && p.X < r.X+r.W && r.Y < p.Y+p.H && p.Y < r.Y+r.H {
			return true
		}
	}
	return false
}

func insideAnother(r Rect, all []Rect) bool {
	for _, o := range all {
		if o != r && o.X <= r.X && o.Y <= r.Y && r.X+r.W <= o.X+o.W && r.Y+r.H <= o.Y+o.H {
			return true
		}
	}
	return false
}

func rect(x, y, w, h int) Rect {
	return Rect{X: share.PerMille(x), Y: share.PerMille(y), Box: box(w, h)}
}

func box(w, h int) Box { return Box{W: share.PerMille(w), H: share.PerMille(h)} }

// checkPacking fails the test unless rects are the boxes, inside the slice and disjoint.
func checkPacking(t *testing.T, boxes []Box, rects []Rect) {
	t.Helper()
	if len(rects) != len(boxes) {
		t.Fatalf("%d rectangles for %d boxes", len(rects), len(boxes))
	}
	for i, r := range rects {
		if r.Box != boxes[i] {
			t.Fatalf("box %d is %v, its rectangle %v", i, boxes[i], r)
		}
		if r.X < 0 || r.Y < 0 || r.X+r.W > 1000 || r.Y+r.H > 1000 {
			t.Fatalf("%v leaves the slice", r)
		}
		for _, o := range rects[:i] {
			if r.X < o.X+o.W && o.X < r.X+r.W && r.Y < o.Y+o.H && o.Y < r.Y+r.H {
				t.Fatalf("%v and %v overlap, of %v", r, o, boxes)
			}
		}
	}
}

// cut returns a random set of n boxes that fills the slice, made by guillotine cuts at multiples of unit.
func cut(rng *rand.Rand, n, unit int) []Box {
	boxes := []Box{box(1000, 1000)}
	for tries := 0; len(boxes) < n && tries < 1000; tries++ {
		i := rng.IntN(len(boxes))
		b := boxes[i]
		side := &b.W
		if rng.IntN(2) == 0 {
			side = &b.H
		}
		rest := b
		if parts := int(*side) / unit; parts > 1 {
			at := share.PerMille((1 + rng.IntN(parts-1)) * unit)
			if side == &b.W {
				rest.W -= at
			} else {
				rest.H -= at
			}
			*side = at
			boxes[i] = b
			boxes = append(boxes, rest)
		}
	}
	return boxes
}
