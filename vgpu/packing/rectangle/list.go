package rectangle

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Placed is a placed box with the ID that the caller chose for it.
type Placed struct {
	ID int
	Rect
}

// List is the state of FaST-GShare's Algorithm 2 for one slice: its free and its placed rectangles. It is not safe for concurrent use.
type List struct {
	free   freeList
	placed []Placed // by ID
}

// NewList returns the list of an empty slice: one free rectangle of the whole window and all SMs.
func NewList() *List { return &List{free: freeList{wholeSlice}} }

// ListOf returns the list of a slice on which rects are placed, with their indices as IDs. They must not overlap; those of Arrange do not.
// The list contains every maximal free rectangle, unlike one that keeps released rectangles as they were.
func ListOf(rects []Rect) *List {
	l := NewList()
	for i, r := range rects {
		l.put(i, r)
	}
	return l
}

// Fit returns the waste of b in the free rectangle that Place would choose, without placing b. It returns false if no free rectangle is
// large enough for b.
func (l *List) Fit(b Box) (Waste, bool) {
	r, ok := l.free.bestFor(b)
	if !ok {
		return Waste{}, false
	}
	return wasteOf(b, r), true
}

// Place places b into the bottom-left corner of the free rectangle that it fits best, as the Maximal Rectangles algorithm of FaST-GShare
// chooses it (F26). It returns false, and changes nothing, if no free rectangle holds b or the ID is already placed.
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
	l.free = l.free.occupy(r)
}

func (l *List) find(id int) (int, bool) {
	return slices.BinarySearchFunc(l.placed, id, func(p Placed, id int) int { return cmp.Compare(p.ID, id) })
}

// Free returns a copy of the free rectangles, from the bottom up, then from left to right.
func (l *List) Free() []Rect {
	return slices.SortedFunc(slices.Values(l.free), compareByPosition)
}

// Release makes the placed rectangle with an ID free again, unchanged, for the next pod of the same function ("keep"), and removes
// free rectangles inside it (F29). An unknown ID changes nothing.
//
// Released rectangles are not joined with their neighbours, so the list is rebuilt when it grows too long. The paper has no
// threshold; 3 x placed + 4 is gshare's (F27).
func (l *List) Release(id int) {
	i, ok := l.find(id)
	if !ok {
		return
	}
	l.free = l.free.add(l.placed[i].Rect)
	l.placed = slices.Delete(l.placed, i, i+1)
	if len(l.free) > 3*len(l.placed)+4 {
		l.Restructure()
	}
}

// Restructure rebuilds the list by packing the placed boxes again on an empty slice. The greedy order may fail to place what was
// placed before. In that case Restructure keeps the old list and returns false (F28).
func (l *List) Restructure() bool {
	scratch, ok := l.packAgain()
	if ok {
		*l = *scratch
	}
	return ok
}

// Repack returns a list on which the placed boxes and room for b are packed again, largest area first, or false. Rectangles are logical, so
// no pod moves. Callers try Repack before they take a new slice (F27), and then place b on the list it returns. Repack does not change l.
func (l *List) Repack(b Box) (*List, bool) {
	if !b.isValid() || b.Area() > l.FreeArea() {
		return nil, false
	}
	return l.packAgain(b)
}

// FreeArea returns the SM-time that no placed box occupies. A box of that area need not fit (F31).
func (l *List) FreeArea() share.Area {
	sum := share.WholeArea
	for _, p := range l.placed {
		sum -= p.Area()
	}
	return sum
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
