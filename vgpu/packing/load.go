package packing

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing/slot"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// MilliGPU is a thousandth of a slice's SM-time; only ranking uses it, never admission.
type MilliGPU int64

// WholeGPU is the SM-time of one slice.
const WholeGPU MilliGPU = 1000

// Resident is one share on a slice, with what it imposes on its neighbours.
type Resident struct {
	Tenant string // namespace of its pod
	Model  Model
	Class  share.Isolation
	Share  share.Share
	Use    Use // what is known of its load; only preference reads it
}

// Load is what one slice holds. The zero value is an empty slice.
type Load struct {
	residents []Resident
	items     []slot.Item
	memory    share.Bytes
	requested share.Area
	limits    share.Area
}

// Residents lists the shares on the slice in the order in which they were added. The caller must not change it.
func (l *Load) Residents() []Resident { return l.residents }

// Empty says that the slice holds no share.
func (l *Load) Empty() bool { return len(l.residents) == 0 }

// Memory is the device memory promised to the shares.
func (l *Load) Memory() share.Bytes { return l.memory }

// Requested is the SM-time promised to the shares.
func (l *Load) Requested() share.Area { return l.requested }

// Add puts a share on the slice without asking whether it fits.
func (l *Load) Add(r Resident) {
	l.residents = append(l.residents, r)
	l.items = append(l.items, itemOf(r.Share))
	l.memory += r.Share.Memory
	l.requested += r.Share.RequestArea()
	l.limits += r.Share.LimitArea()
}

// clone copies the load so that adding to the copy leaves the original alone.
func (l *Load) clone() Load {
	c := *l
	c.residents = slices.Clip(l.residents)
	c.items = slices.Clip(l.items)
	return c
}

// free is the SM-time not promised yet, rounded down: what is left of a slice of 1000.
func (l *Load) free() MilliGPU { return max(0, WholeGPU-milli(l.requested)) }

// milli rounds an area up to a thousandth of a slice.
func milli(a share.Area) MilliGPU {
	return MilliGPU((a + share.Area(share.Whole) - 1) / share.Area(share.Whole))
}

func itemOf(s share.Share) slot.Item { return slot.Item{SM: s.SMRequest, Quota: s.QuotaRequest} }
