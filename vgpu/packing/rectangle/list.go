package rectangle

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Placed is one placed box under the key that its owner chose.
type Placed struct {
	ID int
	Rect
}

// List is the state of Algorithm 2 for one slice: free and placed rectangles. It is not safe for concurrent use.
type List struct {
	free   free
	placed []Placed // by ID
}

// NewList returns an empty slice: one free rectangle of W x H (FG-110).
func NewList() *List { return &List{free: free{whole}} }

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
	r, ok := l.free.best(b)
	if !ok {
		return Waste{}, false
	}
	return wasteOf(b, r), true
}

// Place puts b into the bottom-left corner of the best free rectangle (FG-113, FG-115; F26). It returns false, and changes
// nothing, if no free rectangle holds b or if id is already placed.
func (l *List) Place(id int, b Box) (Rect, bool) {
	r, ok := l.free.best(b)
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

// Placed returns a copy of what is placed, by ID.
func (l *List) Placed() []Placed { return slices.Clone(l.placed) }

// Free returns a copy of the free rectangles, by (y, x).
func (l *List) Free() []Rect {
	return slices.SortedFunc(slices.Values(l.free), byPlace)
}

// Empty reports whether nothing is placed. The free rectangles may still be in pieces (FG-120).
func (l *List) Empty() bool { return len(l.placed) == 0 }

// FreeArea returns the SM-time that nothing occupies: necessary for another box, not sufficient (F31).
func (l *List) FreeArea() share.Area {
	sum := share.WholeArea
	for _, p := range l.placed {
		sum -= p.Area()
	}
	return sum
}
