package gpumap

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/cmd/internal/output"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// The size of a picture in cells. A picture is higher if more shares run at the same time than it has lines.
const (
	widest    = 64
	narrowest = 8
	lowest    = 4
	usual     = 12
	highest   = 24
)

// Detail draws one GPU: a block for each share, with time from left to right and SMs from bottom to top, and a legend.
func Detail(w io.Writer, s Slice, o Options) {
	p := newPage(o)
	defer p.write(w)
	s.Shares = sortedShares(s.Shares)
	how, fits := s.plan()
	p.addLines(p.heading(s, how.name())...)
	picture := how.draw(p.pictureSize(how.tall()))
	c := newCanvas(picture)
	looks := c.shareStyles(len(s.Shares), p.Color)
	p.drawPicture(c, picture, looks)
	p.addLines("")
	if !fits {
		p.addLines(p.strong(shorten("these shares do not fit together", p.Width)))
	}
	p.legend(s, looks)
}

// sortedShares returns the shares in the order of their letters. The share with the largest quota is the first and is drawn at the bottom.
func sortedShares(shares []Share) []Share {
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

// withSMTime returns the shares that request SM-time, which come first in sorted order. Shares that request none run in time that the others
// leave, and appear in the legend only.
func withSMTime(sorted []Share) []Share {
	if at := slices.IndexFunc(sorted, func(x Share) bool { return x.Share.SMRequest == 0 && x.Share.QuotaRequest == 0 }); at >= 0 {
		return sorted[:at]
	}
	return sorted
}

// plan returns how the shares of the slice divide its window, as a slot table or as rectangles, and whether they are admissible in that form.
// Nodes execute slot tables, so rectangles are admissible only if there is a slot table with the reserve, too. The plan is empty if none was
// found.
func (s Slice) plan() (plan, bool) {
	window := cmp.Or(s.Window, defaultWindow)
	t, ok := solve(s.Shares, window, s.Reserve)
	if !s.Rectangles {
		return t, ok
	}
	b, arranged := arrange(s.Shares, window)
	return b, ok && arranged
}

// heading returns the lines above the drawing of a GPU: its name, how its shares are packed, and how much of it is allocated.
func (p *page) heading(s Slice, how string) []string {
	node := shorten(s.Node, p.Width-columns(fmt.Sprint(" GPU ", s.Index)))
	words := []string{p.strong(fmt.Sprint(node, " GPU ", s.Index)), shorten(s.Model, p.Width), how, countOf(len(s.Shares), "share")}
	if words[1] == "" {
		words = slices.Delete(words, 1, 2)
	}
	var t totals
	t.slice(s)
	return append(joinLines(words, " · ", p.Width), joinLines(allocatedText(t), " · ", p.Width)...)
}

// pictureSize returns the width and height of a drawing on the page, so that the time axis and some of the legend fit below it.
func (p *page) pictureSize(tall int) (width, height int) {
	const below = 7
	height = min(max(tall, usual), highest, max(p.linesLeft()-below, lowest))
	return min(max(p.Width-margin, narrowest), widest), height
}

// drawPicture adds a drawing and its axes to the page.
func (p *page) drawPicture(c canvas, drawn picture, looks []shareStyle) {
	for y := range drawn.height {
		p.addLines(p.faint(smAxis(y, drawn.height)) + c.renderLine(p.painter, looks, y))
	}
	for _, line := range timeAxis(drawn) {
		p.addLines(p.faint(line))
	}
}

const (
	swatch      = 4 // columns of a block with its letter and a space
	longestName = 40
	shortest    = 12 // columns of a name that is written beside its share
)

// legend adds a legend to the page: the share for each letter, and the SM-time that is free.
func (p *page) legend(s Slice, looks []shareStyle) {
	lines := p.linesLeft() - 1 // the last line is for what is free
	for at, entry := range p.entries(s.Shares, looks) {
		last := at == len(s.Shares)-1
		if lines < len(entry) || !last && lines == len(entry) {
			p.addLines(p.faint(firstFitting(p.Width, "… "+countOf(len(s.Shares)-at, "more share"), "…")))
			break
		}
		p.addLines(entry...)
		lines -= len(entry)
	}
	p.addLines(p.faint(s.freeText(p.Width)))
}

// entries returns the legend's lines for each share: one line if the pod's name and the share fit on it, else several.
func (p *page) entries(shares []Share, looks []shareStyle) [][]string {
	list := make([][]string, len(shares))
	name, size := 0, 0
	for _, x := range shares {
		name, size = max(name, columns(output.Line(x.Pod))), max(size, columns(x.Share.String()))
	}
	name = min(name, longestName, max(p.Width-swatch-2-size, shortest))
	for at, x := range shares {
		block := p.block(looks[at], fillShade([]byte{0, letterOf(at), 0}, looks[at].shade)) + " "
		if swatch+name+2+size <= p.Width {
			list[at] = []string{block + pad(shorten(x.Pod, name), name) + "  " + x.Share.String()}
		} else {
			list[at] = append([]string{block + shorten(x.Pod, p.Width-swatch)}, wrapShare(x.Share, p.Width)...)
		}
	}
	return list
}

// wrapShare returns the indented lines with a share that does not fit beside its pod's name.
func wrapShare(s share.Share, width int) []string {
	lines := joinLines([]string{s.String()}, "", width-swatch)
	for at := range lines {
		lines[at] = strings.Repeat(" ", swatch) + lines[at]
	}
	return lines
}

// freeText returns the legend's line with the free SM-time, and the fraction of the window that is reserved for switching between turns.
func (s Slice) freeText(width int) string {
	rest := share.PerMille(max(share.WholeArea-s.allocated(), 0) / share.Area(share.Whole))
	text := fmt.Sprintf("···  free: %s of SM-time", rest.Percent())
	if s.Reserve <= 0 || !slices.ContainsFunc(s.Shares, takesTurns) {
		return firstFitting(width, text, "··· free "+rest.Percent())
	}
	return firstFitting(width,
		fmt.Sprintf("%s, %s of the window kept for switching turns", text, s.Reserve.Percent()),
		fmt.Sprintf("%s, %s kept for switching", text, s.Reserve.Percent()),
		text, "··· free "+rest.Percent())
}

func takesTurns(x Share) bool { return x.Share.QuotaRequest < share.Whole }
