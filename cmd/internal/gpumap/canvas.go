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

// look is the letter, colour and shading with which a share is drawn.
type look struct {
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
		c.label(b, p.height)
	}
	return c
}

// label writes the letter of a share into the middle of its block, with a space on each side if the block is wide enough.
func (c canvas) label(b block, height int) {
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

// line returns one line of the canvas as text with colour codes.
func (c canvas) line(p painter, looks []look, y int) string {
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
			b.WriteString(p.block(l, fill(c.text[y][from:to], l.shade)))
		}
		from = to
	}
	return b.String()
}

// fill returns a text in which the cells without a character are replaced by the shading.
func fill(text []byte, shade string) string {
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
