package slot

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
