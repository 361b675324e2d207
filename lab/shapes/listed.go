package shapes

import (
	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// listed is a GPU under FaST-GShare's Algorithm 2, corrected: the smallest sufficient free rectangle (FG-113), and
// keep-restructure when a pod leaves (FG-120, FG-121). Like the paper it never re-packs to fit a pod.
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

// stretched returns the box of a pod on a GPU with a reserve: its quota as a part of the window without the reserve, at most 1.
// Boxes beside each other then leave the reserve free; those of full quota need none, nor does a single configuration, with all
// boxes above each other, which fits at any width.
func stretched(p Pod, reserve share.PerMille) rectangle.Box {
	left := share.Whole - reserve
	return rectangle.Box{W: min(share.Whole, (p.Quota*share.Whole+left-1)/left), H: p.SM}
}
