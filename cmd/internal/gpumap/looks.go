package gpumap

// looks gives every share its letter, its colour and, without colour, a shade that differs from its neighbours'.
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

// neighbours says which shares touch which.
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

// coloured gives each share one of n shades that no earlier neighbour has. It tries another one first for each share, so
// that all shades are used; where neighbours have them all, the letters must do.
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
