package gpumap

// looks returns how each share is drawn: its letter with a colour or, without colours, with a shading that differs from its neighbours'.
func (c canvas) looks(shares int, color bool) []look {
	list := make([]look, shares)
	for who := range list {
		list[who] = look{string(letterOf(who)), hues[who%len(hues)], " "}
	}
	if !color {
		for who, shade := range coloured(c.neighbours(shares), len(shades)) {
			list[who].shade = shades[shade]
		}
	}
	return list
}

// neighbours returns for each share the set of shares whose blocks are adjacent to its own.
func (c canvas) neighbours(shares int) []map[int]bool {
	touch := make([]map[int]bool, shares)
	for who := range touch {
		touch[who] = map[int]bool{}
	}
	meet := func(a, b int) {
		if a != b && a != nobody && b != nobody {
			touch[a][b], touch[b][a] = true, true
		}
	}
	for y, line := range c.who {
		for x, who := range line {
			if x > 0 {
				meet(line[x-1], who)
			}
			if y > 0 {
				meet(c.who[y-1][x], who)
			}
		}
	}
	return touch
}

// coloured chooses one of n shadings for each share, different from those of neighbours with a lower index if possible. The first choice
// alternates, so that all shadings are used.
func coloured(touch []map[int]bool, n int) []int {
	shade := make([]int, len(touch))
	for who := range touch {
		taken := map[int]bool{}
		for other := range touch[who] {
			if other < who {
				taken[shade[other]] = true
			}
		}
		shade[who] = who % n
		for step := 0; step < n && taken[shade[who]]; step++ {
			shade[who] = (shade[who] + 1) % n
		}
	}
	return shade
}
