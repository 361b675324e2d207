package rectangle

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Choose returns the slice for b, or false if none can hold it: first the best match over the free rectangles of all slices in use,
// then the slice in use with the least spare area that holds b after re-packing (F27), then the first empty slice, which is the
// paper's new GPU. It changes nothing.
func Choose(lists []*List, b Box) (int, bool) {
	if i, ok := bestMatch(lists, b); ok {
		return i, true
	}
	if i, ok := bestRepack(lists, b); ok {
		return i, true
	}
	return firstEmpty(lists, b)
}

// Put places b under id on the slice that Choose returns, re-packed if necessary, and returns that slice: one run of Algorithm 2
// with both of its outputs. The id must be unique over the slices.
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
		if l.Empty() && b.isValid() {
			return i, true
		}
	}
	return 0, false
}

// Placed returns a copy of what is placed, by ID.
func (l *List) Placed() []Placed { return slices.Clone(l.placed) }

// Empty reports whether nothing is placed. The free rectangles may still be in pieces.
func (l *List) Empty() bool { return len(l.placed) == 0 }

// Less reports whether w is the better match: the smaller area left, then the smaller shorter side (F26).
func (w Waste) Less(o Waste) bool { return w.compare(o) < 0 }
