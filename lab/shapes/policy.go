package shapes

import (
	"cmp"
	"fmt"
	"math"
)

// Policies returns the packings. All take the GPU on which the pod wastes least, before an empty one.
//
//	mra            FaST-GShare's maximal rectangles with keep-restructure
//	maxrects-bssf  maximal rectangles by best short side fit
//	replan         rectangles planned again for each pod, on the fullest GPU
//	slot-best-fit  slots, on the fullest GPU
//	slot           slots, on the GPU that is fullest in what its pods are worth to the fleet
func Policies() []string { return []string{"mra", "maxrects-bssf", "replan", "slot-best-fit", "slot"} }

// New returns an empty fleet that packs by the named policy.
func New(policy string, c Config) (*Fleet, error) {
	f := &Fleet{config: c, learn: func(Pod) {}, home: map[int]seat{}}
	switch policy {
	case "mra":
		f.fresh = func() board { return newListed(c.Reserve) }
	case "maxrects-bssf":
		f.fresh = func() board { return newMaxRects(c.Reserve) }
	case "replan":
		f.fresh = newCounted(layout(c.Reserve))
	case "slot-best-fit":
		f.fresh = newCounted(turns(c.Reserve))
	case "slot":
		prices, m := newPrices(c.Reserve), turns(c.Reserve)
		m.worth, f.learn = prices.worth, prices.learn
		f.fresh = newCounted(m)
	default:
		return nil, fmt.Errorf("unknown policy %q", policy)
	}
	return f, nil
}

// board is a policy's state of one used GPU.
type board interface {
	// offer returns what the pod would waste here, if it fits and wastes less than the given amount.
	offer(p Pod, than waste) (waste, bool)
	place(id int, p Pod)
	remove(id int)
}

// waste orders GPUs for a pod, the least first, in the unit of the policy. The second number breaks ties.
type waste struct{ first, second int64 }

func (w waste) less(o waste) bool {
	return cmp.Or(cmp.Compare(w.first, o.first), cmp.Compare(w.second, o.second)) < 0
}

// most is more than any waste.
var most = waste{first: math.MaxInt64}
