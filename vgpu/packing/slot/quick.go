package slot

// quick tries the cheap tests, all in exact integers. They settle most questions that arise while a fleet fills.
func (p *problem) quickTest() result {
	switch {
	case p.exceedsArea(), p.exceedsPairs():
		return exceeds
	case p.fitsLanes():
		return fits
	}
	return unknown
}

// areaExceeds reports whether the pieces need more SM-time than there is.
func (p *problem) exceedsArea() bool {
	area := 0
	for _, x := range p.list() {
		area += int(x.cells) * int(x.quota)
	}
	return area > p.cells*p.limit
}

// pairsExceed reports whether the pieces of more than half the cells, no two of which ever run together, need more time than
// there is.
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

// lanesFit lays the pieces end to end, tallest first, into lanes as long as the limit. A piece that reaches the end of a
// lane goes on at the start of the next; no quota is longer than a lane, so it never meets itself. The first piece of a
// lane is its tallest, so the lanes fit if their first pieces do (docs/packing.md, fact 3).
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
