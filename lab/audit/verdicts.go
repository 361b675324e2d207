package audit

import (
	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// verdicts are what is known about one more share on a load. A share that asks for no more than one that fits does fit,
// so that few tests answer for many pods. Full quota is a case of its own: as slots, such a share never takes turns, and
// may fit where one with a little less time does not.
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

// learn keeps the verdict; one of no only if it is certain, for a search that gave up says nothing about larger shares.
func (v *verdicts) learn(i slot.Item, fit, certain bool) {
	switch {
	case fit:
		v.fit = append(v.fit, i)
	case certain:
		v.unfit = append(v.unfit, i)
	}
}

// within says that a asks for no more than b, and takes turns if b does.
func within(a, b slot.Item) bool {
	return a.SM <= b.SM && a.Quota <= b.Quota && (a.Quota == share.Whole) == (b.Quota == share.Whole)
}
