package slot

// pivot brings a configuration into the basis. It returns false if no member makes room, which exact numbers exclude.
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

// direction computes by how much each basis member shrinks for a unit of the entering configuration.
func (g *program) computeDirection(enter config) {
	clear(g.step[:g.n])
	for ; !enter.empty(); enter = enter.withoutFirst() {
		for k, v := range g.column(enter.first()) {
			g.step[k] += v
		}
	}
}

// leaving chooses the basis member that reaches zero first; among those that tie, the one with the largest pivot, which
// keeps rounding small, and then the first.
func (g *program) leavingMember() int {
	reach := g.timeToZero()
	best := -1
	for k, d := range g.step[:g.n] {
		if d <= tiny || g.time[k] > float64(reach*d)+tiny {
			continue
		}
		if best < 0 || d > g.step[best] {
			best = k
		}
	}
	return best
}

// reach returns the time at which the first basis member is used up.
func (g *program) timeToZero() float64 {
	reach := float64(maxCells * maxPartials)
	for k, d := range g.step[:g.n] {
		if d > tiny {
			reach = min(reach, g.time[k]/d)
		}
	}
	return reach
}

// shift moves time from the basis members to the one that took place leave.
func (g *program) moveTime(leave int) {
	t := g.time[leave] / g.step[leave]
	for k, d := range g.step[:g.n] {
		g.time[k] = max(0, g.time[k]-float64(t*d))
	}
	g.time[leave] = t
}

// eliminate updates one column of the inverse for the member that took place leave.
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
