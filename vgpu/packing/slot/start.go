package slot

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
