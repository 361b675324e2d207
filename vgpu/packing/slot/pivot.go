package slot

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
