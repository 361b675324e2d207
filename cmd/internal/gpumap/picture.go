package gpumap

import (
	"slices"
	"time"
)

// plan is a division of a GPU's window among shares that can be drawn: a slot table or rectangles.
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

// edges divides a row of cells in proportion to sizes, and returns the borders: section k is between edges k and k+1. whole is the total
// that fills the row; the sum of sizes may be less. Each section has at least one cell if there are enough cells.
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
