package slot

// quickTest decides, by simple tests in exact integers, most of the problems that arise while a fleet fills. It returns unknown for the
// others.
func (p *problem) quickTest() result {
	switch {
	case p.exceedsArea(), p.exceedsPairs():
		return exceeds
	case p.fitsLanes():
		return fits
	}
	return unknown
}

// exceedsArea reports whether the items need more SM-time than the slice has within the limit.
func (p *problem) exceedsArea() bool {
	area := 0
	for _, x := range p.list() {
		area += int(x.cells) * int(x.quota)
	}
	return area > p.cells*p.limit
}

// exceedsPairs reports whether the items that need more than half of the SMs, no two of which can run together, have quotas that add up to
// more than the limit.
func (p *problem) exceedsPairs() bool {
	time := 0
	for _, x := range p.list() {
		if 2*int(x.cells) <= p.cells {
			break
		}
		time += int(x.quota)
	}
	return time > p.limit
}

// fitsLanes reports whether the items fit if they are laid end to end, those with most SMs first, into lanes as long as the limit. An item
// that reaches the end of a lane continues at the start of the next; no quota is longer than a lane, so an item never overlaps itself. The
// first item of a lane needs most SMs, so the lanes fit if their first items do (docs/packing.md, fact 3).
func (p *problem) fitsLanes() bool {
	height, end, lane := 0, 0, 0
	for _, x := range p.list() {
		end += int(x.quota)
		if end > lane {
			height += int(x.cells)
			lane += p.limit
		}
	}
	return height <= p.cells
}
