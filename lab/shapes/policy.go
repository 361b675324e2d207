package shapes

import (
	"cmp"
	"fmt"
	"math"
)

// Policies returns the names of the packing policies. All of them prefer the used GPU on which the pod wastes least to an empty GPU.
//
//	mra            FaST-GShare's maximal rectangles with keep-restructure
//	maxrects-bssf  maximal rectangles by best short side fit
//	replan         rectangles packed again for each pod, on the fullest GPU
//	slot-best-fit  slots, on the fullest GPU
//	slot           slots, on the GPU that is fullest by the shadow prices of its pods
func Policies() []string { return []string{"mra", "maxrects-bssf", "replan", "slot-best-fit", "slot"} }

// New returns an empty fleet that packs pods by the named policy, or an error if there is no such policy.
func New(policy string, c Config) (*Fleet, error) {
	f := &Fleet{config: c, learn: func(Pod) {}, home: map[int]location{}}
	switch policy {
	case "mra":
		f.fresh = func() gpuState { return newMRA(c.Reserve) }
	case "maxrects-bssf":
		f.fresh = func() gpuState { return newMaxRects(c.Reserve) }
	case "replan":
		f.fresh = newCounted(rectangleTest(c.Reserve))
	case "slot-best-fit":
		f.fresh = newCounted(slotTest(c.Reserve))
	case "slot":
		prices, m := newPrices(c.Reserve), slotTest(c.Reserve)
		m.worth, f.learn = prices.worth, prices.learn
		f.fresh = newCounted(m)
	default:
		return nil, fmt.Errorf("unknown policy %q", policy)
	}
	return f, nil
}

// gpuState is the state that a policy keeps for one used GPU.
type gpuState interface {
	// offer returns what the pod would waste here, if it fits and wastes less than the given amount.
	offer(p Pod, than waste) (waste, bool)
	place(id int, p Pod)
	remove(id int)
}

// waste is what a pod would leave unused on a GPU, in the unit of the policy. The GPU with the least waste is taken; the second number
// breaks ties.
type waste struct{ first, second int64 }

func (w waste) less(o waste) bool {
	return cmp.Or(cmp.Compare(w.first, o.first), cmp.Compare(w.second, o.second)) < 0
}

// maxWaste is more than the waste on any GPU.
var maxWaste = waste{first: math.MaxInt64}
