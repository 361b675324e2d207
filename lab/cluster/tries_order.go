package cluster

import (
	"cmp"
	"iter"
	"slices"
)

// window is the number of pods that wait before the policy together places them.
const window = 64

// together tries a joint choice: of the pods that wait at the same time, the largest is placed first.
type together struct{ *gsharePolicy }

func newTogether(s *Simulation) policy { return &together{newGsharePolicy(s)} }

// decisions yields the pods in the order in which they are placed: that of arrival, unless the policy sorts waiting pods.
func (s *Simulation) decisions() iter.Seq[*shape] {
	if _, ok := s.policy.(*together); !ok {
		return s.arrivals()
	}
	return func(yield func(*shape) bool) {
		var wait []*shape
		for next := range s.arrivals() {
			if wait = append(wait, next); len(wait) == window {
				if !yieldLargest(wait, yield) {
					return
				}
				wait = wait[:0]
			}
		}
		yieldLargest(wait, yield)
	}
}

// yieldLargest yields the pods with the most GPUs first, and among equal ones those with the most CPU first.
func yieldLargest(wait []*shape, yield func(*shape) bool) bool {
	slices.SortStableFunc(wait, func(a, b *shape) int {
		return cmp.Or(cmp.Compare(b.pod.gpu(), a.pod.gpu()), cmp.Compare(b.pod.CPU, a.pod.CPU))
	})
	for _, next := range wait {
		if !yield(next) {
			return false
		}
	}
	return true
}
