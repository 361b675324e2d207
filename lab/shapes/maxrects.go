package shapes

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// maxRectsGPU is a GPU packed by MaxRects-BSSF (J. Jylänki, "A thousand ways to pack the bin", 2010): a box is placed in the maximal free
// rectangle of which it leaves the least along the shorter remaining side. Boxes do not move; when one is removed, the maximal free
// rectangles are computed again.
type maxRectsGPU struct {
	reserve share.PerMille
	ids     []int
	rects   []rectangle.Rect // in the order of the ids
	free    []rectangle.Rect
}

func newMaxRects(reserve share.PerMille) *maxRectsGPU {
	m := &maxRectsGPU{reserve: reserve}
	m.refresh()
	return m
}

func (m *maxRectsGPU) refresh() { m.free = rectangle.ListOf(m.rects).Free() }

func (m *maxRectsGPU) offer(p Pod, than waste) (waste, bool) {
	k := m.best(stretchedBox(p, m.reserve))
	if k < 0 {
		return maxWaste, false
	}
	w := sidesLeft(stretchedBox(p, m.reserve), m.free[k])
	return w, w.less(than)
}

// best returns the index of the free rectangle in which b leaves the least, or -1. Among equal rectangles it returns the lowest, then
// the leftmost.
func (m *maxRectsGPU) best(b rectangle.Box) int {
	best, least := -1, maxWaste
	for k, r := range m.free {
		if b.W > r.W || b.H > r.H {
			continue
		}
		if w := sidesLeft(b, r); w.less(least) {
			best, least = k, w
		}
	}
	return best
}

// sidesLeft returns the shorter and the longer side that a box leaves of a rectangle, as a waste.
func sidesLeft(b rectangle.Box, r rectangle.Rect) waste {
	w, h := int64(r.W-b.W), int64(r.H-b.H)
	return waste{min(w, h), max(w, h)}
}

func (m *maxRectsGPU) place(id int, p Pod) {
	b := stretchedBox(p, m.reserve)
	r := m.free[m.best(b)]
	r.Box = b
	m.ids, m.rects = append(m.ids, id), append(m.rects, r)
	m.refresh()
}

func (m *maxRectsGPU) remove(id int) {
	k := slices.Index(m.ids, id)
	m.ids, m.rects = slices.Delete(m.ids, k, k+1), slices.Delete(m.rects, k, k+1)
	m.refresh()
}
