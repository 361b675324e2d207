package slot

// start builds a first basis: run unfinished pieces that fit together until one of them is done, and so on. Each
// configuration belongs to the piece that it finishes, which no later one holds; so the basis is triangular, and its
// inverse follows from the last configuration to the first.
func (g *program) initBasis() {
	var left [maxPartials]float64
	var done [maxPartials]int
	open := config(0)
	for j, x := range g.list() {
		left[j], open = float64(x.quota), open.with(j)
	}
	for k := range g.n {
		c := g.greedyConfig(open, &left)
		done[k] = soonest(c, &left)
		g.basis[k], g.time[k] = c, left[done[k]]
		subtractTime(c, &left, g.time[k])
		open = open.without(done[k])
	}
	g.invert(&done)
}

// greedy takes open pieces that fit, the one with most left first, among equals the tallest. Measured on the families of
// docs/packing.md this saves a third of the pivots that "tallest first" needs.
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

// longest returns the open piece with most left among those that fit the room, or -1.
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

// soonest returns the piece of c that has least left.
func soonest(c config, left *[maxPartials]float64) int {
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

// invert fills the inverse of the triangular basis in which member k finishes piece done[k].
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

// column is piece j's column of the inverse.
func (g *program) column(j int) []float64 { return g.inverse[j*g.n : (j+1)*g.n] }

// reprice sets every piece's price so that each basis member is worth exactly its time.
func (g *program) reprice() {
	for j := range g.n {
		sum := 0.0
		for _, v := range g.column(j) {
			sum += v
		}
		g.price[j] = sum
	}
}
