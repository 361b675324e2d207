package slot

import (
	"math"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// program solves the configuration LP by column generation with a revised simplex method. Its many methods are the steps of one algorithm
// on one tableau.
//
// Its basis has as many configurations as there are partial items (items with less than full quota), and they run every item for exactly
// its quota. The inverse of the basis is stored by column: inverse[j*n+k] is the row of basis configuration k and the column of item j.
// Products that enter a sum are written float64(a*b), so that no machine fuses multiplication and addition and all compute the same.
type program struct {
	problem
	basis   [maxPartials]config
	time    [maxPartials]float64 // per mille of a window for each basis member
	price   [maxPartials]float64 // the dual: what a per mille of a window costs item j
	step    [maxPartials]float64 // how basis members shrink as the entering configuration grows
	inverse [maxPartials * maxPartials]float64
	knapsack
}

const (
	// timeTolerance bounds the rounding error of a sum of times, in per mille of a window.
	timeTolerance = 1e-7
	// pivotTolerance bounds the rounding error of an entry of the basis inverse: a smaller value is not used as a pivot. The entries are
	// ratios of small integers.
	pivotTolerance = 1e-9
	// priceScale scales prices to integers. 64 items x quota 1000 x 2^46 stays below 2^63.
	priceScale = 1 << 46
)

// decide returns whether the length (the least total time of the configurations) is at most the limit. It stops at the first proof: a
// solution that is short enough, or prices by which none is. It returns unknown only if rounding keeps the method from converging.
func (g *program) decide() result {
	g.initBasis()
	for range g.maxPivots() {
		if g.length() <= float64(g.limit)+timeTolerance {
			return g.verify()
		}
		enter, proof := g.priceOut()
		if proof {
			return exceeds
		}
		if !g.pivot(enter) {
			return unknown
		}
	}
	return unknown
}

// maxPivots bounds the number of pivots. The hardest sets of 64 items that were tried need 11 for each item.
func (g *program) maxPivots() int { return 200 + 50*g.n }

// length returns the time of all basis configurations together, in per mille of a window.
func (g *program) length() float64 {
	sum := 0.0
	for _, t := range g.time[:g.n] {
		sum += t
	}
	return sum
}

// verify computes from the basis configurations alone for how long every item runs, and returns fits if that is its quota. So no set of
// shares is admitted because of rounding errors in the inverse.
func (g *program) verify() result {
	var got [maxPartials]float64
	for k, c := range g.basis[:g.n] {
		for ; !c.empty(); c = c.withoutFirst() {
			got[c.first()] += g.time[k]
		}
	}
	for j, x := range g.list() {
		if got[j] < float64(x.quota)-timeTolerance {
			return unknown
		}
	}
	return fits
}

// priceOut returns the configuration of highest value at the current prices, and whether the prices prove that no table is short enough.
// They do if all quotas together cost more than that configuration running for the whole limit (Farley's bound). The bound is computed with
// integer weights, so rounding of the prices can weaken it but cannot make it wrong.
func (g *program) priceOut() (enter config, proof bool) {
	g.setWeights()
	enter, most := g.heaviest(&g.problem)
	cost := int64(0)
	for j, x := range g.list() {
		cost += int64(x.quota) * g.weight[j]
	}
	return enter, cost > int64(g.limit)*most
}

// setWeights rounds the prices to integer weights, relative to the highest price. A price below zero counts as zero, because an item can
// always be left out of a configuration.
func (g *program) setWeights() {
	top := pivotTolerance
	for _, y := range g.price[:g.n] {
		top = max(top, y)
	}
	for j, y := range g.price[:g.n] {
		g.weight[j] = int64(max(y, 0) / top * priceScale)
	}
}

// pivot brings a configuration into the basis. It returns false if no basis configuration can leave, which happens by rounding errors only.
func (g *program) pivot(enter config) bool {
	g.computeDirection(enter)
	leave := g.leavingMember()
	if leave < 0 {
		return false
	}
	g.basis[leave] = enter
	g.moveTime(leave)
	for j := range g.n {
		g.eliminate(g.column(j), leave)
	}
	g.reprice()
	return true
}

// computeDirection computes by how much the time of each basis configuration shrinks for a unit of the entering configuration.
func (g *program) computeDirection(enter config) {
	clear(g.step[:g.n])
	for ; !enter.empty(); enter = enter.withoutFirst() {
		for k, v := range g.column(enter.first()) {
			g.step[k] += v
		}
	}
}

// leavingMember returns the index of the basis configuration whose time reaches zero first. Of equal ones it returns the one with the
// largest pivot, which keeps rounding errors small, and then the first. It returns -1 if there is none.
func (g *program) leavingMember() int {
	reach := g.timeToZero()
	best := -1
	for k, d := range g.step[:g.n] {
		if d <= pivotTolerance || g.time[k] > float64(reach*d)+pivotTolerance {
			continue
		}
		if best < 0 || d > g.step[best] {
			best = k
		}
	}
	return best
}

// timeToZero returns how long the entering configuration can run until the time of the first basis configuration is zero (the ratio test of
// the simplex method).
func (g *program) timeToZero() float64 {
	reach := float64(maxCells * maxPartials)
	for k, d := range g.step[:g.n] {
		if d > pivotTolerance {
			reach = min(reach, g.time[k]/d)
		}
	}
	return reach
}

// moveTime takes time from the basis configurations and assigns it to the configuration that has entered at index leave.
func (g *program) moveTime(leave int) {
	t := g.time[leave] / g.step[leave]
	for k, d := range g.step[:g.n] {
		g.time[k] = max(0, g.time[k]-float64(t*d))
	}
	g.time[leave] = t
}

// eliminate updates one column of the basis inverse after a new configuration has entered at index leave.
func (g *program) eliminate(column []float64, leave int) {
	v := column[leave] / g.step[leave]
	if v == 0 {
		return
	}
	for k, d := range g.step[:len(column)] {
		column[k] -= float64(v * d)
	}
	column[leave] = v
}

// run is a configuration and how long it runs in each window.
type run struct {
	config config
	length time.Duration
}

// roundedRuns converts the times of the solution to whole nanoseconds. They are first rounded down; then every run of an item that still
// lacks time is extended by a nanosecond, as long as the window has time left. After that an item can lack time only if the window has no
// reserve for the extensions, or if all of its runs have been extended already.
func (g *program) roundedRuns(window time.Duration) []run {
	runs := g.floorRuns(window)
	spare := g.timeLimit(window) - totalTime(runs)
	short := g.shortage(runs, window)
	for k := range runs {
		if spare > 0 && holdsShort(runs[k].config, short) {
			runs[k].length++
			spare--
			subtractRun(runs[k].config, short, 1)
		}
	}
	return dropEmpty(trimLongest(runs, spare))
}

// floorRuns rounds every run down to whole nanoseconds. A time that is less than a thousandth of a nanosecond below an integer is rounded
// up to it, because the difference is a rounding error.
func (g *program) floorRuns(window time.Duration) []run {
	runs := make([]run, g.n)
	for k, t := range g.time[:g.n] {
		exact := float64(t*float64(window)) / float64(share.Whole)
		runs[k] = run{g.basis[k], time.Duration(math.Floor(exact + 1e-3))}
	}
	return runs
}

// timeLimit returns the time that all runs may take: the window without the reserve, plus up to a nanosecond of the reserve for each item.
func (g *program) timeLimit(window time.Duration) time.Duration {
	whole := time.Duration(share.Whole)
	budget := window * time.Duration(g.limit) / whole
	if g.limit == int(share.Whole) {
		return budget
	}
	return min(window, budget+time.Duration(g.n))
}

// shortage returns, for each item, the time in picoseconds by which it falls short of its quota. In picoseconds it is an integer for every
// window.
func (g *program) shortage(runs []run, window time.Duration) []int64 {
	short := make([]int64, g.n)
	for j, x := range g.list() {
		short[j] = int64(x.quota) * int64(window)
	}
	for _, r := range runs {
		subtractRun(r.config, short, r.length)
	}
	return short
}

func subtractRun(c config, short []int64, d time.Duration) {
	for ; !c.empty(); c = c.withoutFirst() {
		short[c.first()] -= int64(d) * int64(share.Whole)
	}
}

func holdsShort(c config, short []int64) bool {
	for ; !c.empty(); c = c.withoutFirst() {
		if short[c.first()] > 0 {
			return true
		}
	}
	return false
}

func totalTime(runs []run) time.Duration {
	sum := time.Duration(0)
	for _, r := range runs {
		sum += r.length
	}
	return sum
}

// trimLongest shortens the longest run by the time by which rounding exceeded the limit, if it did.
func trimLongest(runs []run, spare time.Duration) []run {
	longest := 0
	for k := range runs {
		if runs[k].length > runs[longest].length {
			longest = k
		}
	}
	runs[longest].length += min(spare, 0)
	return runs
}

func dropEmpty(runs []run) []run {
	kept := runs[:0]
	for _, r := range runs {
		if r.length > 0 {
			kept = append(kept, r)
		}
	}
	return kept
}

// initBasis builds a first basis: it lets unfinished items that fit together run until one of them has had its quota, then chooses again.
// Each configuration finishes one item, which no later configuration contains. So the basis is triangular, and its inverse can be computed
// from the last configuration back to the first.
func (g *program) initBasis() {
	var left [maxPartials]float64
	var done [maxPartials]int
	open := config(0)
	for j, x := range g.list() {
		left[j], open = float64(x.quota), open.with(j)
	}
	for k := range g.n {
		c := g.greedyConfig(open, &left)
		done[k] = firstFinished(c, &left)
		g.basis[k], g.time[k] = c, left[done[k]]
		subtractTime(c, &left, g.time[k])
		open = open.without(done[k])
	}
	g.invert(&done)
}

// greedyConfig returns a configuration of unfinished items. It keeps adding the item with the most time left that still fits; of equal
// ones, the one with the most SMs. Measured on the families of docs/packing.md, this needs a third fewer pivots than "most SMs first".
func (g *program) greedyConfig(open config, left *[maxPartials]float64) config {
	c, room := config(0), g.cells
	for {
		k := g.longest(open, room, left)
		if k < 0 {
			return c
		}
		c, open, room = c.with(k), open.without(k), room-int(g.partials[k].cells)
	}
}

// longest returns the unfinished item with most time left among those whose SMs are still free, or -1.
func (g *program) longest(open config, room int, left *[maxPartials]float64) int {
	best := -1
	for ; !open.empty(); open = open.withoutFirst() {
		k := open.first()
		if int(g.partials[k].cells) <= room && (best < 0 || left[k] > left[best]) {
			best = k
		}
	}
	return best
}

// firstFinished returns the item of a configuration that has the least time left.
func firstFinished(c config, left *[maxPartials]float64) int {
	best := c.first()
	for ; !c.empty(); c = c.withoutFirst() {
		if left[c.first()] < left[best] {
			best = c.first()
		}
	}
	return best
}

func subtractTime(c config, left *[maxPartials]float64, t float64) {
	for ; !c.empty(); c = c.withoutFirst() {
		left[c.first()] -= t
	}
}

// invert computes the inverse of the triangular basis in which configuration k finishes item done[k].
func (g *program) invert(done *[maxPartials]int) {
	for k := g.n - 1; k >= 0; k-- {
		column := g.column(done[k])
		clear(column)
		column[k] = 1
		for c := g.basis[k].without(done[k]); !c.empty(); c = c.withoutFirst() {
			for m, v := range g.column(c.first()) {
				column[m] -= v
			}
		}
	}
	g.reprice()
}

// column returns the column of item j in the basis inverse.
func (g *program) column(j int) []float64 { return g.inverse[j*g.n : (j+1)*g.n] }

// reprice sets the prices of all items so that those of the items in each basis configuration add up to exactly 1, the cost of a unit of
// its time.
func (g *program) reprice() {
	for j := range g.n {
		sum := 0.0
		for _, v := range g.column(j) {
			sum += v
		}
		g.price[j] = sum
	}
}
