package rectangle

import "slices"

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
	scratch, ok := l.repacked()
	if ok {
		*l = *scratch
	}
	return ok
}

// Repack returns a list on which everything on the slice is packed again, largest area first, with room for b, or false.
// Rectangles are logical, so no pod moves; callers try it before they take a new slice (F27). Place then puts b on the new list; l
// is unchanged.
func (l *List) Repack(b Box) (*List, bool) {
	if !b.valid() || b.Area() > l.FreeArea() {
		return nil, false
	}
	return l.repacked(b)
}

func (l *List) repacked(more ...Box) (*List, bool) {
	var boxes []Box
	for _, p := range l.placed {
		boxes = append(boxes, p.Box)
	}
	rects, ok := greedy(append(boxes, more...), byArea)
	if !ok {
		return nil, false
	}
	out := NewList()
	for i, p := range l.placed {
		out.put(p.ID, rects[i])
	}
	return out, true
}
