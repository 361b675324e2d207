package packing

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// MilliGPU is a thousandth of the SM-time of one slice. It is rounded, so it serves for ranking nodes only and not for admission.
type MilliGPU int64

// WholeGPU is the SM-time of one whole slice.
const WholeGPU MilliGPU = 1000

// Resident is one share that runs on a slice, with the properties that further shares must be compatible with.
type Resident struct {
	Tenant string // namespace of the pod
	Model  Model
	Class  share.Isolation
	Share  share.Share
	Use    Use // what is known of its load; only rankers read it
}

// Load is the set of shares on one slice and their sums. The zero value is the load of an empty slice.
type Load struct {
	residents []Resident
	items     []slot.Item
	memory    share.Bytes
	requested share.Area
	limits    share.Area
}

// Residents returns the shares in the order in which they were added. The caller must not modify the list.
func (l *Load) Residents() []Resident { return l.residents }

// Empty reports whether the slice holds no share.
func (l *Load) Empty() bool { return len(l.residents) == 0 }

// Memory returns the sum of the device memory of the shares.
func (l *Load) Memory() share.Bytes { return l.memory }

// Requested returns the sum of the SM-time (SM request x quota request) of the shares.
func (l *Load) Requested() share.Area { return l.requested }

// Add adds a share without checking whether it fits.
func (l *Load) Add(r Resident) {
	l.residents = append(l.residents, r)
	l.items = append(l.items, itemOf(r.Share))
	l.memory += r.Share.Memory
	l.requested += r.Share.RequestArea()
	l.limits += r.Share.LimitArea()
}

// clone returns a copy. Adding shares to it does not change the original.
func (l *Load) clone() Load {
	c := *l
	c.residents = slices.Clip(l.residents)
	c.items = slices.Clip(l.items)
	return c
}

// freeSMTime returns the SM-time of the slice that no share has requested, rounded down.
func (l *Load) freeSMTime() MilliGPU { return max(0, WholeGPU-milliGPUOf(l.requested)) }

// milliGPUOf converts an area (SMs x quota) to thousandths of a slice, rounded up.
func milliGPUOf(a share.Area) MilliGPU {
	return MilliGPU((a + share.Area(share.Whole) - 1) / share.Area(share.Whole))
}

// itemOf returns the request of a share as the slot package's item.
func itemOf(s share.Share) slot.Item { return slot.Item{SM: s.SMRequest, Quota: s.QuotaRequest} }
