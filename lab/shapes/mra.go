package shapes

import (
	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// mraGPU is a GPU packed by FaST-GShare's maximal rectangles (Algorithm 2, corrected): it uses the smallest free rectangle that suffices,
// and keep-restructure when a pod leaves. With repack, its rectangles are packed again before a pod would get an empty GPU (F27); the paper never packs again to fit a pod.
type mraGPU struct {
	list    *rectangle.List
	reserve share.PerMille
	repack  bool
}

func newMRA(reserve share.PerMille, repack bool) *mraGPU {
	return &mraGPU{rectangle.NewList(), reserve, repack}
}

func (m *mraGPU) offer(p Pod, than waste) (waste, bool) {
	b := stretchedBox(p, m.reserve)
	if left, ok := m.list.Fit(b); ok {
		w := waste{int64(left.Area), int64(left.ShortSide)}
		return w, w.less(than)
	}
	w := wasteAfterRepack(m.list.FreeArea() - b.Area())
	if !m.repack || !w.less(than) {
		return maxWaste, false
	}
	_, ok := m.list.Repack(b)
	return w, ok
}

// wasteAfterRepack returns the waste on a GPU that must be packed again and will then have the area left. It is more than the waste
// in any free rectangle.
func wasteAfterRepack(left share.Area) waste { return waste{first: int64(share.WholeArea + 1 + left)} }

func (m *mraGPU) place(id int, p Pod) {
	b := stretchedBox(p, m.reserve)
	if _, ok := m.list.Place(id, b); !ok {
		m.list, _ = m.list.Repack(b)
		m.list.Place(id, b)
	}
}

func (m *mraGPU) remove(id int) { m.list.Release(id) }

// bestAreaGPU is a GPU packed as by the scheduler's profile gshare-rectangle: the rectangles are recomputed from the set of pods for each
// decision, a pod must fit with the others both as rectangles and in a slot table with the reserve, and GPUs are compared as by
// packing.BestArea.
type bestAreaGPU struct {
	setGPU
	list *rectangle.List // of the set of pods; nil if no arrangement of them was found
}

func newBestArea(reserve share.PerMille) func() gpuState {
	slots, boxes := slotTest(reserve), rectangleTest(0)
	both := boxes
	both.admits = func(pods []Pod) bool { return slots.admits(pods) && boxes.admits(pods) }
	return func() gpuState { return &bestAreaGPU{setGPU{fitTest: both}, rectangle.NewList()} }
}

func (b *bestAreaGPU) offer(p Pod, than waste) (waste, bool) {
	if b.area+p.Area() > share.WholeArea || b.hasRefused(p) {
		return maxWaste, false
	}
	w := wasteAfterRepack(share.WholeArea - b.area - p.Area())
	if b.list != nil {
		if left, ok := b.list.Fit(stretchedBox(p, 0)); ok {
			w = waste{int64(left.Area), int64(left.ShortSide)}
		}
	}
	return w, w.less(than) && b.fits(p)
}

func (b *bestAreaGPU) place(id int, p Pod) {
	b.setGPU.place(id, p)
	b.arrange()
}

func (b *bestAreaGPU) remove(id int) {
	b.setGPU.remove(id)
	b.arrange()
}

func (b *bestAreaGPU) arrange() {
	b.list = nil
	if rects, ok := rectangle.Arrange(boxesOf(b.pods, 0)); ok {
		b.list = rectangle.ListOf(rects)
	}
}

func boxesOf(pods []Pod, reserve share.PerMille) []rectangle.Box {
	boxes := make([]rectangle.Box, len(pods))
	for k, p := range pods {
		boxes[k] = stretchedBox(p, reserve)
	}
	return boxes
}
