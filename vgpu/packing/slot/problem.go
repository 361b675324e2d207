package slot

import (
	"encoding/binary"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// maxPartials bounds the partial items of a slice (shares with less than full quota), each of which is one bit of a configuration. MPS
// serves fewer clients on a device than that.
const maxPartials = 64

// result is the outcome of a feasibility test. The zero value means that the test has decided nothing.
type result int8

const (
	unknown result = iota
	fits
	exceeds
)

// partial is an item with less than full quota, so that it takes turns with others. Its SMs are counted in cells.
type partial struct {
	cells int32
	quota int32 // per mille of a window
}

// precedes reports whether p is before q in the canonical order: more cells first, then the longer quota.
func (p partial) precedes(q partial) bool {
	return p.cells > q.cells || p.cells == q.cells && p.quota > q.quota
}

// problem is one feasibility problem of the slot model: a set of items in canonical form. The same items in any order give the same
// problem, apart from origin.
//
// A cell, the unit of SMs, is the greatest common divisor of the items' SMs. Users request whole percents, so a cell is seldom less than 10
// per mille, and the knapsack over cells stays small.
type problem struct {
	n        int
	partials [maxPartials]partial
	origin   [maxPartials]int32 // index of each item in the caller's list
	cells    int                // SMs that the items with full quota leave free
	limit    int                // per mille of a window that all turns may take
}

// normalize brings the items into canonical form and decides the trivial cases. The problem is filled in completely only if the result is
// unknown.
func (p *problem) normalize(items []Item, reserve share.PerMille) result {
	all, full, ok := sumSMs(items)
	switch {
	case !ok || full > int(share.Whole):
		return exceeds
	case all <= int(share.Whole):
		return fits
	}
	return p.collectPartials(items, int(share.Whole)-full, limitUnder(reserve))
}

// collectPartials stores the items with less than full quota. The free SMs are theirs to share; no quota may exceed the limit.
func (p *problem) collectPartials(items []Item, free, limit int) result {
	p.n, p.limit = 0, limit
	for at, i := range items {
		if i.isFull() {
			continue
		}
		if p.n == maxPartials || int(i.SM) > free || int(i.Quota) > limit {
			return exceeds
		}
		p.insert(partial{int32(i.SM), int32(i.Quota)}, int32(at))
	}
	p.scaleToCells(free)
	return unknown
}

// insert adds a partial item in canonical order. Of equal items the earlier one stays first.
func (p *problem) insert(x partial, at int32) {
	k := p.n
	for ; k > 0 && x.precedes(p.partials[k-1]); k-- {
		p.partials[k], p.origin[k] = p.partials[k-1], p.origin[k-1]
	}
	p.partials[k], p.origin[k] = x, at
	p.n++
}

// scaleToCells changes the unit of SMs from per mille to cells. Free SMs below a whole cell are dropped, because no item can use them.
func (p *problem) scaleToCells(free int) {
	unit := int32(0)
	for _, x := range p.list() {
		unit = gcd(x.cells, unit)
	}
	for k := range p.list() {
		p.partials[k].cells /= unit
	}
	p.cells = free / int(max(unit, 1))
}

func (p *problem) list() []partial { return p.partials[:p.n] }

// key appends a byte string to b that identifies the problem uniquely.
func (p *problem) key(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(p.cells)<<16|uint32(p.limit))
	for _, x := range p.list() {
		b = binary.LittleEndian.AppendUint32(b, uint32(x.cells)<<16|uint32(x.quota))
	}
	return b
}

func gcd(a, b int32) int32 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Item is the request of one share: SM of the slice's SMs for Quota of every window. It never runs twice at the same time.
type Item struct {
	SM, Quota share.PerMille
}

// isValid reports whether SMs and quota are between 1 and 1000 per mille.
func (i Item) isValid() bool { return inRange(i.SM) && inRange(i.Quota) }

// isFull reports whether the item has full quota, so that it runs in every configuration.
func (i Item) isFull() bool { return i.Quota == share.Whole }

func inRange(p share.PerMille) bool { return 1 <= p && p <= share.Whole }

// sumSMs returns the sum of SMs over all items and over those with full quota. It returns ok = false if an item is not valid.
func sumSMs(items []Item) (all, full int, ok bool) {
	for _, i := range items {
		if !i.isValid() {
			return 0, 0, false
		}
		all += int(i.SM)
		if i.isFull() {
			full += int(i.SM)
		}
	}
	return all, full, true
}

// limitUnder returns the part of a window, in per mille, that turns may take when the reserve is kept free for switching. A reserve below
// zero counts as zero.
func limitUnder(reserve share.PerMille) int {
	return int(share.Whole - min(max(reserve, 0), share.Whole))
}
