package gpumap

import "strings"

const (
	nobody = -1
	letter = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
)

// canvas is a drawing as character cells, from the top line to the bottom: which share fills each cell, and the label in it.
type canvas struct {
	who  [][]int
	text [][]byte // label character of each cell, or 0
}

// shareStyle is the letter, colour and shading with which a share is drawn.
type shareStyle struct {
	letter string
	hue    int
	shade  string
}

// newCanvas converts the blocks of a drawing to character cells.
func newCanvas(p picture) canvas {
	c := canvas{make([][]int, p.height), make([][]byte, p.height)}
	for y := range c.who {
		c.who[y], c.text[y] = make([]int, p.width), make([]byte, p.width)
		for x := range c.who[y] {
			c.who[y][x] = nobody
		}
	}
	for _, b := range p.blocks {
		for y := p.height - b.top; y < p.height-b.bottom; y++ {
			for x := b.left; x < b.right; x++ {
				c.who[y][x] = b.who
			}
		}
		c.addLabel(b, p.height)
	}
	return c
}

// addLabel writes the letter of a share into the middle of its block, with a space on each side if the block is wide enough.
func (c canvas) addLabel(b block, height int) {
	line := c.text[height-1-(b.bottom+b.top-1)/2]
	middle := (b.left + b.right - 1) / 2
	line[middle] = letterOf(b.who)
	if b.right-b.left >= 5 {
		line[middle-1], line[middle+1] = ' ', ' '
	}
}

// letterOf returns the letter that identifies a share in a drawing, or a plus sign if there are more shares than letters.
func letterOf(who int) byte {
	if who < len(letter) {
		return letter[who]
	}
	return '+'
}

// renderLine returns one line of the canvas as text with colour codes.
func (c canvas) renderLine(p painter, looks []shareStyle, y int) string {
	var b strings.Builder
	who := c.who[y]
	for from := 0; from < len(who); {
		to := from + 1
		for to < len(who) && who[to] == who[from] {
			to++
		}
		if who[from] == nobody {
			b.WriteString(p.faint(strings.Repeat("·", to-from)))
		} else {
			l := looks[who[from]]
			b.WriteString(p.block(l, fillShade(c.text[y][from:to], l.shade)))
		}
		from = to
	}
	return b.String()
}

// fillShade returns a text in which the cells without a character are replaced by the shading.
func fillShade(text []byte, shade string) string {
	var b strings.Builder
	for _, t := range text {
		if t == 0 {
			b.WriteString(shade)
		} else {
			b.WriteByte(t)
		}
	}
	return b.String()
}

// shareStyles returns how each share is drawn: its letter with a colour or, without colours, with a shading that differs from its neighbours'.
func (c canvas) shareStyles(shares int, color bool) []shareStyle {
	list := make([]shareStyle, shares)
	for who := range list {
		list[who] = shareStyle{string(letterOf(who)), shareColours[who%len(shareColours)], " "}
	}
	if !color {
		for who, shade := range assignShades(c.neighbours(shares), len(shades)) {
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

// assignShades chooses one of n shadings for each share, different from those of neighbours with a lower index if possible. The first choice
// alternates, so that all shadings are used.
func assignShades(touch []map[int]bool, n int) []int {
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
