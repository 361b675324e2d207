package slot

import "github.com/gshare-dev/gshare/vgpu/share"

// Item is the demand of one share: it needs SM of the slice's SMs, in one piece at a time, for Quota of every window.
type Item struct {
	SM, Quota share.PerMille
}

// valid reports whether the item asks for something, and for no more than there is.
func (i Item) valid() bool { return within(i.SM) && within(i.Quota) }

// full reports whether the item is in every configuration.
func (i Item) full() bool { return i.Quota == share.Whole }

func within(p share.PerMille) bool { return 1 <= p && p <= share.Whole }

// totals returns the SMs of all items and of those with full quota; ok is false if an item is not valid.
func totals(items []Item) (all, full int, ok bool) {
	for _, i := range items {
		if !i.valid() {
			return 0, 0, false
		}
		all += int(i.SM)
		if i.full() {
			full += int(i.SM)
		}
	}
	return all, full, true
}

// limitOf returns the part of a window that turns may take under a reserve. A reserve below zero counts as zero.
func limitOf(reserve share.PerMille) int {
	return int(share.Whole - min(max(reserve, 0), share.Whole))
}
