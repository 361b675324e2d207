package slot

import "github.com/gshare-dev/gshare/vgpu/share"

// Length returns the shortest time, in windows, in which all items that do not ask for full quota get theirs, while those
// with full quota run throughout. It is zero if there are no others. ok is false for sets that fit no window however
// long: an invalid item, more SMs than the slice has, or more than 64 items that take turns.
//
// For a single item it is its quota; over a fleet it measures how full a slice is in time.
func Length(items []Item) (tau float64, ok bool) {
	_, full, ok := sumSMs(items)
	if !ok || full > int(share.Whole) {
		return 0, false
	}
	g := new(program)
	if g.collectPartials(items, int(share.Whole)-full, int(share.Whole)) == exceeds {
		return 0, false
	}
	ok = g.minimise()
	return g.length() / float64(share.Whole), ok
}

// minimise pivots until no configuration is worth more than its time.
func (g *program) minimise() bool {
	g.initBasis()
	for range g.maxPivots() {
		enter, _ := g.priceOut()
		if g.worthOf(enter) <= 1+pivotTolerance {
			return true
		}
		if !g.pivot(enter) {
			return false
		}
	}
	return false
}

// worthOf returns the price of a configuration.
func (g *program) worthOf(c config) float64 {
	sum := 0.0
	for ; !c.empty(); c = c.withoutFirst() {
		sum += g.price[c.first()]
	}
	return sum
}
