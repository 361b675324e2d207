package packing

import (
	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// BestArea is FaST's choice among rectangles: the smallest sufficient free rectangle of all slices (FG-113), used slices
// before fresh ones (FG-119), and a re-pack of a used slice before a fresh one (F27).
type BestArea struct{}

// The tiers keep the kinds of fit apart; within a tier the waste decides.
const (
	fitsFree int64 = iota
	fitsAfterRepack
	fitsFresh
)

// Rank implements Ranker. Several picks add up.
func (BestArea) Rank(n *Node, pod *Pod, picks []Choice) Rank {
	var cost, tie int64
	for _, p := range picks {
		tier, waste := wasteOn(&n.Loads[p.Slice], pod.Request.Containers[p.Container].Share)
		cost += tier*int64(share.WholeArea+1) + int64(waste.Area)
		tie += int64(waste.ShortSide)
	}
	return rankOf(cost, tie)
}

func wasteOn(l *Load, sh share.Share) (tier int64, w rectangle.Waste) {
	box := boxOf(sh)
	if l.Empty() {
		return fitsFresh, rectangle.Waste{Area: share.WholeArea - sh.RequestArea()}
	}
	if rects, ok := rectangle.Arrange(boxes(l)); ok {
		if w, ok := rectangle.ListOf(rects).Fit(box); ok {
			return fitsFree, w
		}
	}
	return fitsAfterRepack, rectangle.Waste{Area: share.WholeArea - l.Requested() - sh.RequestArea()}
}
