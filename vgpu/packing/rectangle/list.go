package rectangle

import (
	"cmp"
	"slices"
)

// Placed is one placed box under the key that its owner chose.
type Placed struct {
	ID int
	Rect
}

// List is the state of Algorithm 2 for one slice: free and placed rectangles. It is not safe for concurrent use.
type List struct {
	free   freeList
	placed []Placed // by ID
}

// NewList returns an empty slice: one free rectangle of W x H (FG-110).
func NewList() *List { return &List{free: freeList{whole}} }

// ListOf returns a slice on which rects, disjoint as from Arrange, are placed under their indices. It lists every maximal free
// rectangle, unlike a List that keeps released ones (FG-120).
func ListOf(rects []Rect) *List {
	l := NewList()
	for i, r := range rects {
		l.put(i, r)
	}
	return l
}

// Fit returns the waste of b in the free rectangle that Place would choose, without placing it.
func (l *List) Fit(b Box) (Waste, bool) {
	r, ok := l.free.bestFor(b)
	if !ok {
		return Waste{}, false
	}
	return wasteOf(b, r), true
}

// Place puts b into the bottom-left corner of the best free rectangle (FG-113, FG-115; F26). It returns false, and changes
// nothing, if no free rectangle holds b or if id is already placed.
func (l *List) Place(id int, b Box) (Rect, bool) {
	r, ok := l.free.bestFor(b)
	if _, taken := l.find(id); !ok || taken {
		return Rect{}, false
	}
	r.Box = b
	l.put(id, r)
	return r, true
}

func (l *List) put(id int, r Rect) {
	i, _ := l.find(id)
	l.placed = slices.Insert(l.placed, i, Placed{ID: id, Rect: r})
	l.free = l.free.without(r)
}

func (l *List) find(id int) (int, bool) {
	return slices.BinarySearchFunc(l.placed, id, func(p Placed, id int) int { return cmp.Compare(p.ID, id) })
}

// Free returns a copy of the free rectangles, by (y, x).
func (l *List) Free() []Rect {
	return slices.SortedFunc(slices.Values(l.free), compareByPosition)
}

// Release makes a placed rectangle free again, unchanged, for the next pod of the same function (FG-120, "keep"), and removes free
// rectangles inside it (F29). An unknown id changes nothing.
//
// Kept rectangles are not joined with their neighbours, so the list is rebuilt when it grows too long (FG-121). The paper has no
// threshold; 3 x placed + 4 is gshare's (F27).
func (l *List) Release(id int) {
	i, ok := l.find(id)
	if !ok {
		return
	}
	l.free = l.free.with(l.placed[i].Rect)
	l.placed = slices.Delete(l.placed, i, i+1)
	if len(l.free) > 3*len(l.placed)+4 {
		l.Restructure()
	}
}

// Restructure rebuilds the list from W x H and the placed boxes (FG-121). Greedy order may fail to place what was placed before,
// so it packs a copy, commits only if all boxes fit, and otherwise keeps the old list and returns false (F28).
func (l *List) Restructure() bool {
	scratch, ok := l.packAgain()
	if ok {
		*l = *scratch
	}
	return ok
}

func (l *List) packAgain(more ...Box) (*List, bool) {
	var boxes []Box
	for _, p := range l.placed {
		boxes = append(boxes, p.Box)
	}
	rects, ok := packGreedily(append(boxes, more...), byArea)
	if !ok {
		return nil, false
	}
	out := NewList()
	for i, p := range l.placed {
		out.put(p.ID, rects[i])
	}
	return out, true
}
