package rectangle

import "slices"

// Release gives a placed rectangle back unchanged, for the next pod of the same function (FG-120, "keep"), and removes
// what it now contains (F29). An unknown id changes nothing.
//
// Kept rectangles are not joined with their neighbours, so fragments gather; when the list outgrows what the placed boxes
// explain, it is rebuilt (FG-121). The paper gives no threshold; 3 x placed + 4 is ours, and is only housekeeping (F27).
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

// Restructure rebuilds the list from W x H and what is placed (FG-121). Greedy order may fail to place again what a
// history of arrivals had placed, and then running pods would have no rectangle: so it re-packs aside, commits only if all
// fit, and otherwise keeps the old list and answers false (F28).
func (l *List) Restructure() bool {
	scratch, ok := l.repacked()
	if ok {
		*l = *scratch
	}
	return ok
}

// Repack says whether the slice could hold b if everything on it were packed anew together with b, largest area first.
// Rectangles are logical, so this moves no pod; it is to be tried before a new slice is asked for (F27).
//
// The new list holds what l holds, and leaves room for b, which Place then takes under its id; l is unchanged.
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
