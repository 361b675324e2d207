package packing

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// MilliGPU is a thousandth of the SM-time of a slice. Only ranks use it, because it is rounded; admission does not.
type MilliGPU int64

// WholeGPU is the SM-time of one slice.
const WholeGPU MilliGPU = 1000

// Resident is one share on a slice, with the properties that its neighbours must be compatible with.
type Resident struct {
	Tenant string // namespace of its pod
	Model  Model
	Class  share.Isolation
	Share  share.Share
	Use    Use // what is known of its load; only preference reads it
}

// Load is the set of shares on one slice. The zero value is an empty slice.
type Load struct {
	residents []Resident
	items     []slot.Item
	memory    share.Bytes
	requested share.Area
	limits    share.Area
}

// Residents returns the shares in the order in which they were added. The caller must not modify it.
func (l *Load) Residents() []Resident { return l.residents }

// Empty reports whether the slice holds no share.
func (l *Load) Empty() bool { return len(l.residents) == 0 }

// Memory returns the sum of the device memory of the shares.
func (l *Load) Memory() share.Bytes { return l.memory }

// Requested returns the sum of the requested SM-time of the shares.
func (l *Load) Requested() share.Area { return l.requested }

// Add puts a share on the slice without checking whether it fits.
func (l *Load) Add(r Resident) {
	l.residents = append(l.residents, r)
	l.items = append(l.items, itemOf(r.Share))
	l.memory += r.Share.Memory
	l.requested += r.Share.RequestArea()
	l.limits += r.Share.LimitArea()
}

// clone returns a copy that can be added to without changing the original.
func (l *Load) clone() Load {
	c := *l
	c.residents = slices.Clip(l.residents)
	c.items = slices.Clip(l.items)
	return c
}

// free returns the SM-time that no share has requested, rounded down.
func (l *Load) freeSMTime() MilliGPU { return max(0, WholeGPU-milliGPUOf(l.requested)) }

// milli returns an area in thousandths of a slice, rounded up.
func milliGPUOf(a share.Area) MilliGPU {
	return MilliGPU((a + share.Area(share.Whole) - 1) / share.Area(share.Whole))
}

// itemOf returns the request of a share as an item of the slot model.
func itemOf(s share.Share) slot.Item { return slot.Item{SM: s.SMRequest, Quota: s.QuotaRequest} }
