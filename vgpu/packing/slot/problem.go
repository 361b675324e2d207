package slot

import (
	"encoding/binary"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// maxPieces is how many shares can take turns: the bits of a configuration. MPS serves fewer clients on a device.
const maxPartials = 64

// verdict is what a test can say about a set. The zero value leaves the question open.
type result int8

const (
	unknown result = iota
	fits
	exceeds
)

// piece is an item that takes turns, its SMs counted in cells.
type partial struct {
	cells int32
	quota int32 // per mille of a window
}

// above returns the canonical order: most cells first, then the longer quota.
func (p partial) precedes(q partial) bool {
	return p.cells > q.cells || p.cells == q.cells && p.quota > q.quota
}

// problem is a set in canonical form: every order of the same items gives the same problem, apart from origin.
//
// A cell is the greatest common divisor of the pieces' SMs. Users write percent, so a cell is seldom less than 10 per
// mille, and the knapsack over cells stays short.
type problem struct {
	n      int
	partials [maxPartials]partial
	origin [maxPartials]int32 // where each piece stood in the caller's list
	cells  int              // left to the pieces by the items with full quota
	limit  int              // per mille of a window that the pieces may take together
}

// reduce brings the items into canonical form and settles the cases that need no thought. The problem is complete only
// if the verdict is unknown.
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

// collect makes pieces of the items that take turns, with free SMs to share.
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

// insert keeps the canonical order; among equals the earlier item stays first.
func (p *problem) insert(x partial, at int32) {
	k := p.n
	for ; k > 0 && x.precedes(p.partials[k-1]); k-- {
		p.partials[k], p.origin[k] = p.partials[k-1], p.origin[k-1]
	}
	p.partials[k], p.origin[k] = x, at
	p.n++
}

// count changes the unit of SMs from per mille to cells. What is left below a whole cell serves nobody.
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

// key appends a name of the problem that no other problem has.
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

// Item is the demand of one share: it needs SM of the slice's SMs, in one piece at a time, for Quota of every window.
type Item struct {
	SM, Quota share.PerMille
}

// valid reports whether the item asks for something, and for no more than there is.
func (i Item) isValid() bool { return inRange(i.SM) && inRange(i.Quota) }

// full reports whether the item is in every configuration.
func (i Item) isFull() bool { return i.Quota == share.Whole }

func inRange(p share.PerMille) bool { return 1 <= p && p <= share.Whole }

// totals returns the SMs of all items and of those with full quota; ok is false if an item is not valid.
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

// limitOf returns the part of a window that turns may take under a reserve. A reserve below zero counts as zero.
func limitUnder(reserve share.PerMille) int {
	return int(share.Whole - min(max(reserve, 0), share.Whole))
}
