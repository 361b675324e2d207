package gpumap

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/share"
)

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
		name, size = max(name, columns(printable(x.Pod))), max(size, columns(x.Share.String()))
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

// freeText returns the legend's line with the SM-time that is free, and the fraction of the window that is kept for switching between turns.
func (s Slice) freeText(width int) string {
	rest := share.PerMille(max(share.WholeArea-s.allocated(), 0) / share.Area(share.Whole))
	text := fmt.Sprintf("···  free: %s of SM-time", rest.Percent())
	if s.Reserve <= 0 || s.Rectangles || !slices.ContainsFunc(s.Shares, takesTurns) {
		return firstFitting(width, text, "··· free "+rest.Percent())
	}
	return firstFitting(width,
		fmt.Sprintf("%s, %s of the window kept for switching turns", text, s.Reserve.Percent()),
		fmt.Sprintf("%s, %s kept for switching", text, s.Reserve.Percent()),
		text, "··· free "+rest.Percent())
}

func takesTurns(x Share) bool { return x.Share.QuotaRequest < share.Whole }
