package rectangle

import "github.com/gshare-dev/gshare/vgpu/share"

// Choose is the slice that b goes to, and false if none can hold it: first the best match over all rectangles of all
// slices in use (FG-113); if none fits, the one of them with least area to spare that holds b after re-packing (F27); and
// only then the first empty one (FG-119; an empty slice is the paper's new GPU, FG-114). Nothing is changed: Put also
// places.
func Choose(lists []*List, b Box) (int, bool) {
	if i, ok := bestMatch(lists, b); ok {
		return i, true
	}
	if i, ok := bestRepack(lists, b); ok {
		return i, true
	}
	return firstEmpty(lists, b)
}

// Put places b under id where Choose says, in place of that list if it had to be re-packed, and returns the slice: one
// run of Algorithm 2 with both of its outputs (FG-118). An id is to be unique over the slices.
func Put(lists []*List, id int, b Box) (int, bool) {
	i, ok := Choose(lists, b)
	if !ok {
		return 0, false
	}
	if _, fits := lists[i].Fit(b); !fits {
		lists[i], _ = lists[i].Repack(b)
	}
	_, ok = lists[i].Place(id, b)
	return i, ok
}

func bestMatch(lists []*List, b Box) (index int, found bool) {
	var least Waste
	for i, l := range lists {
		if w, ok := l.Fit(b); ok && !l.Empty() && (!found || w.Less(least)) {
			index, least, found = i, w, true
		}
	}
	return index, found
}

func bestRepack(lists []*List, b Box) (index int, found bool) {
	var least share.Area
	for i, l := range lists {
		if l.Empty() || found && l.FreeArea() >= least {
			continue
		}
		if _, ok := l.Repack(b); ok {
			index, least, found = i, l.FreeArea(), true
		}
	}
	return index, found
}

func firstEmpty(lists []*List, b Box) (int, bool) {
	for i, l := range lists {
		if l.Empty() && b.valid() {
			return i, true
		}
	}
	return 0, false
}
