package gpumap

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/packing/rectangle"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// boxes is an arrangement of rectangles.
type boxes struct {
	window time.Duration
	rects  []rectangle.Rect
}

// arrange returns an arrangement of the shares as rectangles, or false if they do not fit.
func arrange(shares []Share, window time.Duration) (boxes, bool) {
	shares = withSMTime(shares)
	list := make([]rectangle.Box, len(shares))
	for at, x := range shares {
		list[at] = rectangle.BoxOf(x.Share)
	}
	rects, ok := rectangle.Arrange(list)
	return boxes{window, rects}, ok
}

func (b boxes) name() string { return "rectangles" }

func (b boxes) tall() int { return len(b.smBorders()) - 1 }

func (b boxes) draw(width, height int) picture {
	p := picture{width: width, height: height, window: b.window}
	x, y := borderCells(b.timeBorders(), width), borderCells(b.smBorders(), height)
	for who, r := range b.rects {
		p.addBlock(block{who, x[r.X], x[r.X+r.W], y[r.Y], y[r.Y+r.H]})
	}
	for _, at := range b.timeBorders() {
		if at < share.Whole {
			p.ticks = append(p.ticks, tick{x[at], b.window * time.Duration(at) / time.Duration(share.Whole)})
		}
	}
	return p
}

// timeBorders returns the sorted times at which rectangles begin or end, in per mille of the window.
func (b boxes) timeBorders() []share.PerMille {
	return b.borders(func(r rectangle.Rect) (share.PerMille, share.PerMille) { return r.X, r.X + r.W })
}

// smBorders returns the sorted SMs at which rectangles begin or end, in per mille.
func (b boxes) smBorders() []share.PerMille {
	return b.borders(func(r rectangle.Rect) (share.PerMille, share.PerMille) { return r.Y, r.Y + r.H })
}

// borders returns the borders of all rectangles in one direction, and those of the whole slice, sorted and without duplicates.
func (b boxes) borders(ends func(rectangle.Rect) (share.PerMille, share.PerMille)) []share.PerMille {
	list := []share.PerMille{0, share.Whole}
	for _, r := range b.rects {
		from, to := ends(r)
		list = append(list, from, to)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// borderCells maps the borders of rectangles to character cells, such that rectangles that do not overlap do not overlap in the drawing, either.
func borderCells(marks []share.PerMille, cells int) map[share.PerMille]int {
	sizes := make([]int64, len(marks)-1)
	for k := range sizes {
		sizes[k] = int64(marks[k+1] - marks[k])
	}
	at := edges(sizes, int64(share.Whole), cells)
	place := map[share.PerMille]int{}
	for k, mark := range marks {
		place[mark] = at[k]
	}
	return place
}
