package shapes

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// maxRects is a GPU packed by MaxRects-BSSF (J. Jylänki, "A thousand ways to pack the bin", 2010): of all maximal free rectangles,
// the one whose shorter side left is least. Boxes do not move; when one leaves, the maximal free rectangles are computed again.
type maxRects struct {
	reserve share.PerMille
	ids     []int
	rects   []rectangle.Rect // of the ids
	free    []rectangle.Rect
}

func newMaxRects(reserve share.PerMille) *maxRects {
	m := &maxRects{reserve: reserve}
	m.refresh()
	return m
}

func (m *maxRects) refresh() { m.free = rectangle.ListOf(m.rects).Free() }

func (m *maxRects) offer(p Pod, than waste) (waste, bool) {
	k := m.best(stretched(p, m.reserve))
	if k < 0 {
		return most, false
	}
	w := leftOver(stretched(p, m.reserve), m.free[k])
	return w, w.less(than)
}

// best returns the free rectangle in which b leaves least, or -1. The lowest and leftmost of equals comes first.
func (m *maxRects) best(b rectangle.Box) int {
	best, least := -1, most
	for k, r := range m.free {
		if b.W > r.W || b.H > r.H {
			continue
		}
		if w := leftOver(b, r); w.less(least) {
			best, least = k, w
		}
	}
	return best
}

// leftOver is the shorter side left, then the longer one.
func leftOver(b rectangle.Box, r rectangle.Rect) waste {
	w, h := int64(r.W-b.W), int64(r.H-b.H)
	return waste{min(w, h), max(w, h)}
}

func (m *maxRects) place(id int, p Pod) {
	b := stretched(p, m.reserve)
	r := m.free[m.best(b)]
	r.Box = b
	m.ids, m.rects = append(m.ids, id), append(m.rects, r)
	m.refresh()
}

func (m *maxRects) remove(id int) {
	k := slices.Index(m.ids, id)
	m.ids, m.rects = slices.Delete(m.ids, k, k+1), slices.Delete(m.rects, k, k+1)
	m.refresh()
}
