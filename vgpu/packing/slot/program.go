package slot

// program solves the configuration LP by column generation with a revised simplex method. Its many methods are the steps of one
// algorithm on one tableau.
//
// Its basis holds as many configurations as there are pieces, and they give every piece exactly its quota. The inverse
// of the basis is kept column by column: inverse[j*n+k] is the row of basis member k and the column of piece j. Products
// that enter a sum are written float64(a*b), so that no machine fuses them and all compute the same.
type program struct {
	problem
	basis   [maxPartials]config
	time    [maxPartials]float64 // per mille of a window for each basis member
	price   [maxPartials]float64 // the dual: what a per mille of a window costs piece j
	step    [maxPartials]float64 // how basis members shrink as the entering configuration grows
	inverse [maxPartials * maxPartials]float64
	knapsack
}

const (
	// slack is what rounding may add to a sum of times, per mille of a window.
	slack = 1e-7
	// tiny separates a pivot from rounding noise; the entries of a basis inverse are ratios of small integers.
	tiny = 1e-9
	// fine scales prices to integers. 64 pieces x quota 1000 x 2^46 stays below 2^63.
	fine = 1 << 46
)

// decide answers whether the length is at most the limit. It stops at the first proof: a solution that is short enough,
// or prices that show that none is. It is unknown only if rounding keeps the method from converging.
func (g *program) decide() result {
	g.initBasis()
	for range g.maxPivots() {
		if g.length() <= float64(g.limit)+slack {
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

// patience bounds the number of pivots. The hardest sets of 64 pieces that were tried need 11 a piece.
func (g *program) maxPivots() int { return 200 + 50*g.n }

// length returns the time that all basis members take, per mille of a window.
func (g *program) length() float64 {
	sum := 0.0
	for _, t := range g.time[:g.n] {
		sum += t
	}
	return sum
}

// accepted verifies a solution: it recomputes from the configurations alone the time that every piece gets, so that no set of shares is
// admitted because of rounding errors in the inverse matrix.
func (g *program) verify() result {
	var got [maxPartials]float64
	for k, c := range g.basis[:g.n] {
		for ; !c.empty(); c = c.withoutFirst() {
			got[c.first()] += g.time[k]
		}
	}
	for j, x := range g.list() {
		if got[j] < float64(x.quota)-slack {
			return unknown
		}
	}
	return fits
}

// pricing finds the configuration that is worth most at the current prices. If the quotas together are worth more than
// that configuration running for the whole limit, no table is short enough, whatever the prices are: that is Farley's
// bound. It is taken on integer weights, so rounding of the prices can weaken it but cannot make it wrong.
func (g *program) priceOut() (enter config, proof bool) {
	g.setWeights()
	enter, most := g.heaviest(&g.problem)
	cost := int64(0)
	for j, x := range g.list() {
		cost += int64(x.quota) * g.weight[j]
	}
	return enter, cost > int64(g.limit)*most
}

// weigh rounds the prices to integer weights, relative to the highest; a price below zero counts as zero, since a piece
// can always be left out.
func (g *program) setWeights() {
	top := tiny
	for _, y := range g.price[:g.n] {
		top = max(top, y)
	}
	for j, y := range g.price[:g.n] {
		g.weight[j] = int64(max(y, 0) / top * fine)
	}
}
