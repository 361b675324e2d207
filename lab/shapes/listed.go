package shapes

import (
	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// mraGPU is a GPU packed by FaST-GShare's maximal rectangles (Algorithm 2, corrected): the smallest sufficient free rectangle (FG-113), and
// keep-restructure when a pod leaves (FG-120, FG-121). Like the paper it never packs again to fit a pod.
type mraGPU struct {
	list    *rectangle.List
	reserve share.PerMille
}

func newMRA(reserve share.PerMille) *mraGPU { return &mraGPU{rectangle.NewList(), reserve} }

func (l *mraGPU) offer(p Pod, than waste) (waste, bool) {
	left, ok := l.list.Fit(stretchedBox(p, l.reserve))
	w := waste{int64(left.Area), int64(left.ShortSide)}
	return w, ok && w.less(than)
}

func (l *mraGPU) place(id int, p Pod) { l.list.Place(id, stretchedBox(p, l.reserve)) }

func (l *mraGPU) remove(id int) { l.list.Release(id) }

// stretchedBox returns the rectangle of a pod on a GPU with a reserve: its quota is divided by the window less the reserve, and is at most
// 1. Boxes beside each other then leave the reserve free. Boxes of full quota need none, nor does a single configuration, whose boxes are
// above each other and fit at any width.
func stretchedBox(p Pod, reserve share.PerMille) rectangle.Box {
	left := share.Whole - reserve
	return rectangle.Box{W: min(share.Whole, (p.Quota*share.Whole+left-1)/left), H: p.SM}
}
