package packing

import (
	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Rank compares possible placements of a pod: the lower, the better. It packs a cost and a tie-break into one number that fits a
// kube-scheduler score.
type Rank int64

const (
	tieBits = 20
	tieMax  = 1<<tieBits - 1
	costMax = 1<<(63-tieBits) - 2 // a little below the maximum, so that a score can be worse than every rank
)

// rankOf combines a cost and a tie-break into a Rank. Values too large for their bits are clamped.
func rankOf(cost, tie int64) Rank {
	return Rank(clamp(cost, -costMax, costMax)<<tieBits | clamp(tie, 0, tieMax))
}

// Cost returns what the placement takes away from future pods, in millionths of a milli-GPU if the Ranker is Balance.
func (r Rank) Cost() int64 { return int64(r) >> tieBits }

// Plus returns the rank of a placement that costs more by the given amount and has the same tie-break.
func (r Rank) Plus(cost int64) Rank {
	if cost == 0 {
		return r
	}
	return rankOf(r.Cost()+cost, int64(r)&tieMax)
}

func clamp(v, low, high int64) int64 { return min(max(v, low), high) }

// Ranker computes the rank of a node as it would be after placing a pod on the given slices.
type Ranker interface {
	Rank(n *Node, pod *Pod, picks []Choice) Rank
}

// Choice is the slice chosen for one vGPU of a container, given by the container's index in the pod's request.
type Choice struct {
	Pick
	Container int
}

// BestArea is the Ranker of FaST-GShare. It takes the smallest free rectangle of all slices that holds the share, and prefers
// used slices to unused ones, even if a used slice has to be packed again for it (F27).
type BestArea struct{}

// How a share fits a slice, best first: in a free rectangle, after the slice is packed again, or on an unused slice. Slices on which a
// share fits in the same way are compared by waste.
const (
	fitsFree int64 = iota
	fitsAfterRepack
	fitsUnused
)

// Rank returns the SM-time that the picks waste in their free rectangles. The costs of several picks add up.
func (BestArea) Rank(n *Node, pod *Pod, picks []Choice) Rank {
	var cost, tie int64
	for _, p := range picks {
		tier, waste := wasteOn(&n.Loads[p.Slice], pod.Request.Containers[p.Container].Share)
		cost += tier*int64(share.WholeArea+1) + int64(waste.Area)
		tie += int64(waste.ShortSide)
	}
	return rankOf(cost, tie)
}

// wasteOn returns how a share fits a slice (fitsFree, fitsAfterRepack or fitsUnused) and what would be left of its free rectangle.
func wasteOn(l *Load, sh share.Share) (tier int64, w rectangle.Waste) {
	box := rectangle.BoxOf(sh)
	if l.Empty() {
		return fitsUnused, rectangle.Waste{Area: share.WholeArea - sh.RequestArea()}
	}
	if rects, ok := rectangle.Arrange(boxes(l.items)); ok {
		if w, ok := rectangle.ListOf(rects).Fit(box); ok {
			return fitsFree, w
		}
	}
	return fitsAfterRepack, rectangle.Waste{Area: share.WholeArea - l.Requested() - sh.RequestArea()}
}
