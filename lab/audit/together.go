package audit

import (
	"encoding/binary"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// fitsBeside reports whether the request of one more share fits together with those on the slice. A single share always fits.
func (f *finalState) fitsBeside(s *slice, sh share.Share, m kube.FitModel) bool {
	if len(s.held) == 0 {
		return true
	}
	if s.cached == nil {
		s.cached = new(fitCache)
	}
	more := itemOf(sh)
	fit, known := s.cached.lookup(more)
	if !known {
		fit = f.fits(s, sh, m)
		s.cached.add(more, fit, m == kube.Slots || len(s.held) < reliableSearchSize)
	}
	return fit
}

// reliableSearchSize is the number of rectangles up to which an unsuccessful search implies that larger ones do not fit either.
const reliableSearchSize = 8

func (f *finalState) fits(s *slice, sh share.Share, m kube.FitModel) bool {
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

// keyOf returns a string that identifies the multiset of the shares' rectangles.
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

// fitCache caches whether one more share fits a slice. A share that requests no more than one that fits does fit, so few tests serve many
// pods. Full quota is a separate case: in the slot model such a share takes no turns, and may fit where a share with slightly less quota
// does not.
type fitCache struct {
	fit, unfit []slot.Item
}

func (v *fitCache) lookup(i slot.Item) (fit, known bool) {
	for _, k := range v.fit {
		if requestsAtMost(i, k) {
			return true, true
		}
	}
	for _, k := range v.unfit {
		if requestsAtMost(k, i) {
			return false, true
		}
	}
	return false, false
}

// add caches a result. A negative result is cached only if it is certain, because a search that used up its budget implies nothing about
// larger shares.
func (v *fitCache) add(i slot.Item, fit, certain bool) {
	switch {
	case fit:
		v.fit = append(v.fit, i)
	case certain:
		v.unfit = append(v.unfit, i)
	}
}

// requestsAtMost reports whether a requests no more than b, and whether both or neither have full quota.
func requestsAtMost(a, b slot.Item) bool {
	return a.SM <= b.SM && a.Quota <= b.Quota && (a.Quota == share.Whole) == (b.Quota == share.Whole)
}
