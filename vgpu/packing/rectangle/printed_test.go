package rectangle

import "testing"

// printed is lines 5-19 of Algorithm 2 as printed in the paper, except for the corrections that are enabled. It shows that
// the tests of this package detect the printed errors.
type printed struct{ removesR, skipsItself, dropsEmpty bool }

func (p printed) place(list []Rect, r, f Rect) []Rect {
	var lt []Rect
	for _, o := range list {
		if o != r {
			lt = append(lt, o)
		}
	}
	lt = append(lt, p.pieces(r, f)...) // lines 5 and 6
	var star []Rect
	for _, o := range lt {
		meets := o.Overlaps(f)
		if !meets || !p.removesR {
			star = append(star, o) // line 7
		}
		if meets {
			star = append(star, p.pieces(o, f)...) // lines 8 to 14
		}
	}
	return p.unique(star)
}

func (p printed) pieces(r, f Rect) []Rect {
	var out []Rect
	for _, o := range []Rect{
		rectBetween(r.X, r.Y, f.X, r.top()), rectBetween(f.right(), r.Y, r.right(), r.top()),
		rectBetween(r.X, r.Y, r.right(), f.Y), rectBetween(r.X, f.top(), r.right(), r.top()),
	} {
		if o.W >= 0 && o.H >= 0 && (o.Area() > 0 || !p.dropsEmpty) {
			out = append(out, o)
		}
	}
	return out
}

// unique implements lines 15 to 19.
func (p printed) unique(list []Rect) []Rect {
	var out []Rect
	for j, r := range list {
		keep := true
		for k, o := range list {
			inside := r.isInside(o)
			if p.skipsItself {
				inside = inside && j != k && (r != o || k < j)
			}
			keep = keep && !inside
		}
		if keep {
			out = append(out, r)
		}
	}
	return out
}

// twice places a box of 40 x 40 % and one of 60 x 50 %, whose second rectangle also intersects the free one above the first.
func (p printed) twice() (list []Rect, f Rect) {
	first, second := rect(0, 0, 400, 400), rect(400, 0, 600, 500)
	list = p.place([]Rect{wholeSlice}, wholeSlice, first)
	return p.place(list, rect(400, 0, 600, 1000), second), second
}

func twice(t *testing.T) *List {
	l := NewList()
	for i, b := range []Box{box(400, 400), box(600, 500)} {
		if _, ok := l.Place(i, b); !ok {
			t.Fatalf("no room for %v", b)
		}
	}
	return l
}

// TestF21OccupiedAreaIsNotOffered checks F21: as printed, a free rectangle still covers the placed box, and the correct
// pieces, which are inside it, are removed.
func TestF21OccupiedAreaIsNotOffered(t *testing.T) {
	doubled := func(list []Rect, f Rect) bool {
		for _, r := range list {
			if r.Overlaps(f) {
				return true
			}
		}
		return false
	}
	if list, f := (printed{skipsItself: true, dropsEmpty: true}).twice(); !doubled(list, f) {
		t.Error("the printed algorithm was expected to book twice; this test shows nothing")
	}
	if doubled(twice(t).Free(), rect(400, 0, 600, 500)) {
		t.Error("a free rectangle meets a placed one")
	}
}

// TestF22RectangleDoesNotRemoveItself checks F22: as printed, every rectangle is inside itself and is removed.
func TestF22RectangleDoesNotRemoveItself(t *testing.T) {
	if list, _ := (printed{removesR: true, dropsEmpty: true}).twice(); len(list) != 0 {
		t.Error("the printed algorithm was expected to lose every rectangle; this test shows nothing")
	}
	if len(twice(t).Free()) != 2 {
		t.Errorf("free rectangles: %v", twice(t).Free())
	}
	twin := freeList{}.add(rect(0, 0, 10, 10)).add(rect(0, 0, 10, 10))
	if len(twin) != 1 {
		t.Errorf("of two equal rectangles %d stay", len(twin))
	}
}

// TestF23EmptyPiecesAreDropped checks F23: as printed, some pieces have no area.
func TestF23EmptyPiecesAreDropped(t *testing.T) {
	empty := func(list []Rect) (n int) {
		for _, r := range list {
			if r.Area() == 0 {
				n++
			}
		}
		return n
	}
	list := printed{removesR: true, skipsItself: true}.place([]Rect{rect(0, 0, 400, 1000), rect(400, 0, 600, 1000)},
		rect(400, 0, 600, 1000), rect(400, 0, 600, 1000))
	if empty(list) == 0 {
		t.Error("the printed algorithm was expected to keep empty pieces; this test shows nothing")
	}
	l := NewList()
	for i := range 4 {
		l.Place(i, box(500, 500))
		if n := empty(l.Free()); n > 0 {
			t.Errorf("%d empty rectangles in %v", n, l.Free())
		}
	}
	if len(l.Free()) != 0 {
		t.Errorf("a full slice offers %v", l.Free())
	}
}

// TestF28FailedRestructureKeepsTheOldList checks F28: these boxes fit in this order, but not in order of area. As printed,
// the slice is reset, and one running pod has no rectangle any more.
func TestF28FailedRestructureKeepsTheOldList(t *testing.T) {
	boxes := []Box{box(400, 700), box(600, 600), box(1000, 300), box(600, 100)}
	l := NewList()
	for i, b := range boxes {
		l.Place(i, b)
	}
	if _, ok := packGreedily(boxes, byArea); ok || len(l.Placed()) != 4 {
		t.Fatal("the greedy order was expected to fail; this test shows nothing")
	}
	before := l.Placed()
	if l.Restructure() {
		t.Error("restructured, though greedy order cannot place all")
	}
	for i, p := range l.Placed() {
		if p != before[i] {
			t.Errorf("%v became %v", before[i], p)
		}
	}
}
