package gpumap

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// The size of a picture in cells. It grows in height where more shares run together than there are lines.
const (
	widest    = 64
	narrowest = 8
	lowest    = 4
	usual     = 12
	highest   = 24
)

// Detail draws one GPU: its shares over a window of time and over the SMs, and what each letter stands for.
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

// sorted puts shares in the order of their letters: who runs longest comes first and stands lowest.
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

// plan is how the shares are arranged; one without any blocks if they do not fit.
func (s Slice) plan() (plan, bool) {
	if s.Rectangles {
		b, ok := arrange(s.Shares)
		return b, ok
	}
	t, ok := solve(s.Shares, s.Reserve)
	return t, ok
}

// heading says which GPU it is and how much of it is promised.
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

// size is the width and height of the picture; the time axis and some of the legend should fit below it.
func (p *page) size(tall int) (width, height int) {
	const below = 7
	height = min(max(tall, usual), highest, max(p.left()-below, lowest))
	return min(max(p.Width-margin, narrowest), widest), height
}

// draw adds the picture and its axes.
func (p *page) draw(c canvas, drawn picture, looks []look) {
	for y := range drawn.height {
		p.add(p.faint(sms(y, drawn.height)) + c.line(p.painter, looks, y))
	}
	for _, line := range times(drawn) {
		p.add(p.faint(line))
	}
}
