package gpumap

import (
	"slices"
	"time"
)

// plan is a way to share a GPU, before it is drawn.
type plan interface {
	tall() int // the fewest lines on which every share can be seen
	draw(width, height int) picture
	name() string
}

// picture is a window of a GPU as blocks on a grid of cells.
type picture struct {
	width, height int
	blocks        []block
	ticks         []tick
}

// block is some cells of a share. Cells are counted from the left and from below; right and top are the first outside.
type block struct{ who, left, right, bottom, top int }

// tick is a moment of the window and its cell.
type tick struct {
	cell int
	at   time.Duration
}

// put adds a block. A share that goes on in the next turn at the same height stays one block.
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

// edges cuts a line of cells into pieces of the given sizes, of a whole that may be larger than their sum. Piece k goes
// from edge k to edge k+1. If there are enough cells, every piece gets at least one.
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
