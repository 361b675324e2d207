package gpumap

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// The size of a picture in cells. The height grows if more shares run together than there are lines.
const (
	widest    = 64
	narrowest = 8
	lowest    = 4
	usual     = 12
	highest   = 24
)

// Detail draws one GPU: its shares over a window and the SMs, with a legend of their letters.
func Detail(w io.Writer, s Slice, o Options) {
	p := newPage(o)
	defer p.write(w)
	s.Shares = sorted(s.Shares)
	how, fits := s.plan()
	p.add(p.heading(s, how.name())...)
	picture := how.draw(p.size(how.tall()))
	c := newCanvas(picture)
	looks := c.looks(len(s.Shares), p.Color)
	p.draw(c, picture, looks)
	p.add("")
	if !fits {
		p.add(p.strong(shorten("these shares do not fit together", p.Width)))
	}
	p.legend(s, looks)
}

// sorted returns shares in the order of their letters: the one with the largest quota is first and drawn lowest.
func sorted(shares []Share) []Share {
	list := slices.Clone(shares)
	slices.SortStableFunc(list, func(a, b Share) int {
		return cmp.Or(
			cmp.Compare(b.Share.QuotaRequest, a.Share.QuotaRequest),
			cmp.Compare(b.Share.SMRequest, a.Share.SMRequest),
			cmp.Compare(b.Share.Memory, a.Share.Memory),
			cmp.Compare(a.Pod, b.Pod))
	})
	return list
}

// plan returns the arrangement of the shares, or an empty one and false if they do not fit.
func (s Slice) plan() (plan, bool) {
	window := cmp.Or(s.Window, defaultWindow)
	if s.Rectangles {
		b, ok := arrange(s.Shares, window)
		return b, ok
	}
	t, ok := solve(s.Shares, window, s.Reserve)
	return t, ok
}

// heading returns the lines above the picture: the GPU, the kind of its arrangement, and what is allocated.
func (p *page) heading(s Slice, how string) []string {
	node := shorten(s.Node, p.Width-columns(fmt.Sprint(" GPU ", s.Index)))
	words := []string{p.strong(fmt.Sprint(node, " GPU ", s.Index)), shorten(s.Model, p.Width), how, number(len(s.Shares), "share")}
	if words[1] == "" {
		words = slices.Delete(words, 1, 2)
	}
	var t sums
	t.slice(s)
	return append(flow(words, " · ", p.Width), flow(allocatedText(t), " · ", p.Width)...)
}

// size returns the width and height of the picture, which leave lines for the time axis and a part of the legend.
func (p *page) size(tall int) (width, height int) {
	const below = 7
	height = min(max(tall, usual), highest, max(p.left()-below, lowest))
	return min(max(p.Width-margin, narrowest), widest), height
}

// draw adds the picture and its axes to the page.
func (p *page) draw(c canvas, drawn picture, looks []look) {
	for y := range drawn.height {
		p.add(p.faint(smAxis(y, drawn.height)) + c.line(p.painter, looks, y))
	}
	for _, line := range timeAxis(drawn) {
		p.add(p.faint(line))
	}
}
