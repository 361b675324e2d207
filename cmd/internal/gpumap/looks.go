package gpumap

// looks returns the letter and colour of every share, or without colours a shade that differs from its neighbours'.
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

// neighbours returns for every share the set of shares with adjacent blocks.
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

// coloured returns one of n shades for each share that no earlier neighbour has. It starts with another shade for each share, so that
// all are used. If neighbours have all shades, only the letters differ.
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
