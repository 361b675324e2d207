package gpumap

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// plan is a way to divide a GPU's window among shares, a slot table or rectangles, that can be drawn.
type plan interface {
	tall() int // fewest lines on which every share is visible
	draw(width, height int) picture
	name() string
}

// picture is the drawing of a GPU's window: blocks of shares on a grid of cells, and the ticks of the time axis.
type picture struct {
	width, height int
	window        time.Duration
	blocks        []block
	ticks         []tick
}

// block is a rectangle of cells that belongs to one share, counted from the left and from the bottom. right and top are exclusive.
type block struct{ who, left, right, bottom, top int }

// tick is a labelled time on the time axis, and the cell that it belongs to.
type tick struct {
	cell int
	at   time.Duration
}

// addBlock adds a block to the drawing. If it continues the same share's block on its left at the same height, the two are joined.
func (p *picture) addBlock(b block) {
	if b.left >= b.right || b.bottom >= b.top {
		return
	}
	before := slices.IndexFunc(p.blocks, func(o block) bool {
		return o.who == b.who && o.right == b.left && o.bottom == b.bottom && o.top == b.top
	})
	if before >= 0 {
		p.blocks[before].right = b.right
		return
	}
	p.blocks = append(p.blocks, b)
}

// edges divides a row of cells in proportion to sizes, and returns the borders: section k is between edges k and k+1. A sum of sizes equal to
// whole fills the row; a smaller one leaves cells free. Each section has at least one cell if there are enough cells.
func edges(sizes []int64, whole int64, cells int) []int {
	at := make([]int, len(sizes)+1)
	var sum int64
	for k, size := range sizes {
		sum += size
		low, high := at[k], cells
		if len(sizes) <= cells {
			low, high = at[k]+1, cells-(len(sizes)-k-1)
		}
		at[k+1] = min(max(int((sum*int64(cells)+whole/2)/whole), low), high)
	}
	return at
}

// margin is the width of the SM axis in columns: "100%┤".
const margin = 5

// smAxis returns the text of the SM axis on one line of a drawing. It labels every quarter of the height with its percentage.
func smAxis(y, height int) string {
	for quarter := range 4 {
		if y == (height*quarter+2)/4 {
			return fmt.Sprintf("%3d%%┤", 100-25*quarter)
		}
	}
	return "    │"
}

// timeAxis returns the lines of the time axis below a drawing, with a tick where a share starts or stops running.
func timeAxis(p picture) []string {
	line := []rune("  0%└" + strings.Repeat("─", p.width))
	text := []rune(strings.Repeat(" ", margin+p.width))
	putLabel(text, margin-1, "0")
	end := fmt.Sprint(milliseconds(p.window), " ms")
	putLabel(text, margin+p.width-len(end), end)
	for _, t := range p.ticks {
		if 0 < t.cell && t.cell < p.width {
			line[margin+t.cell] = '┬'
			putLabel(text, margin+t.cell, milliseconds(t.at))
		}
	}
	return []string{string(line), string(text)}
}

// putLabel writes a label into a line at a column, if there is space for it and a blank on each side.
func putLabel(text []rune, column int, label string) {
	from, to := column, column+len(label)
	if from < 0 || to > len(text) || strings.TrimSpace(string(text[max(from-1, 0):min(to+1, len(text))])) != "" {
		return
	}
	copy(text[from:to], []rune(label))
}

// milliseconds formats a duration in ms, with a decimal only if it is not whole.
func milliseconds(d time.Duration) string {
	return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()*1000), ".0")
}
