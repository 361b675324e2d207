package audit

import (
	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// verdicts caches whether one more share fits a load. A share that requests no more than one that fits does fit, so few tests
// serve many pods. Full quota is a separate case: in the slot model such a share takes no turns, and may fit where one with
// slightly less quota does not.
type verdicts struct {
	fit, unfit []slot.Item
}

func (v *verdicts) of(i slot.Item) (fit, known bool) {
	for _, k := range v.fit {
		if within(i, k) {
			return true, true
		}
	}
	for _, k := range v.unfit {
		if within(k, i) {
			return false, true
		}
	}
	return false, false
}

// learn caches a result; a negative one only if it is certain, because a search that ended at its budget implies nothing about
// larger shares.
func (v *verdicts) learn(i slot.Item, fit, certain bool) {
	switch {
	case fit:
		v.fit = append(v.fit, i)
	case certain:
		v.unfit = append(v.unfit, i)
	}
}

// within reports whether a requests no more than b, and takes turns if b does.
func within(a, b slot.Item) bool {
	return a.SM <= b.SM && a.Quota <= b.Quota && (a.Quota == share.Whole) == (b.Quota == share.Whole)
}
