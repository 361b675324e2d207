package gpumap

import (
	"slices"
	"time"
)

// plan is an arrangement of the shares of a GPU: a slot table or rectangles.
type plan interface {
	tall() int // fewest lines on which every share is visible
	draw(width, height int) picture
	name() string
}

// picture is the window of a GPU as blocks on a grid of cells.
type picture struct {
	width, height int
	window        time.Duration
	blocks        []block
	ticks         []tick
}

// block is a rectangle of cells of a share, counted from the left and from the bottom. right and top are exclusive.
type block struct{ who, left, right, bottom, top int }

// tick is a time in the window and its cell.
type tick struct {
	cell int
	at   time.Duration
}

// put adds a block. It joins it with that of the turn before if a share continues at the same height.
func (p *picture) put(b block) {
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

// edges divides a line of cells into pieces in proportion to sizes, of a whole that may exceed their sum. Piece k is between edges k and
// k+1. If there are enough cells, every piece gets at least one.
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
