package shapes

import (
	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// listed is a GPU under FaST-GShare's Algorithm 2, corrected: the smallest sufficient free rectangle (FG-113), and
// keep-restructure when a pod leaves (FG-120, FG-121). It never packs anew to make room, which the paper does not do.
type listed struct {
	list    *rectangle.List
	reserve share.PerMille
}

func newListed(reserve share.PerMille) *listed { return &listed{rectangle.NewList(), reserve} }

func (l *listed) offer(p Pod, than waste) (waste, bool) {
	left, ok := l.list.Fit(stretched(p, l.reserve))
	w := waste{int64(left.Area), int64(left.ShortSide)}
	return w, ok && w.less(than)
}

func (l *listed) place(id int, p Pod) { l.list.Place(id, stretched(p, l.reserve)) }

func (l *listed) remove(id int) { l.list.Release(id) }

// stretched is the box of a pod on a GPU that keeps a reserve: as wide as its quota is in what the reserve leaves, and
// at most the whole window. Boxes that stand side by side then leave the reserve free, and those that run all the time
// need none; a single configuration, all boxes above each other, fits at any width.
func stretched(p Pod, reserve share.PerMille) rectangle.Box {
	left := share.Whole - reserve
	return rectangle.Box{W: min(share.Whole, (p.Quota*share.Whole+left-1)/left), H: p.SM}
}
