package audit

import (
	"encoding/binary"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// together reports whether the requests fit. A single share always does.
func (f *final) together(s *slice, sh share.Share, m kube.FitModel) bool {
	if len(s.held) == 0 {
		return true
	}
	if s.known == nil {
		s.known = new(verdicts)
	}
	more := itemOf(sh)
	fit, known := s.known.of(more)
	if !known {
		fit = f.fits(s, sh, m)
		s.known.learn(more, fit, m == kube.Slots || len(s.held) < surelyArranged)
	}
	return fit
}

// surelyArranged is the number of rectangles up to which a failed search implies that larger ones do not fit either.
const surelyArranged = 8

func (f *final) fits(s *slice, sh share.Share, m kube.FitModel) bool {
	if m == kube.Slots {
		var scratch [64]slot.Item
		return f.solver.Fits(append(append(scratch[:0], s.items...), itemOf(sh)), s.Reserve)
	}
	shares := s.shares(sh)
	key := keyOf(shares)
	fit, known := f.packs[key]
	if !known {
		rects, ok := rectangle.Arrange(boxesOf(shares))
		fit = ok && verifyRectangles(shares, rects) == nil
		f.packs[key] = fit
	}
	return fit
}

// keyOf returns a key of the multiset of boxes.
func keyOf(shares []share.Share) string {
	sides := make([]uint32, len(shares))
	for i, s := range shares {
		sides[i] = uint32(s.QuotaRequest)<<16 | uint32(s.SMRequest)
	}
	slices.Sort(sides)
	key := make([]byte, 0, 4*len(sides))
	for _, side := range sides {
		key = binary.LittleEndian.AppendUint32(key, side)
	}
	return string(key)
}

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
