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
