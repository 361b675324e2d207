package gpumap

import (
	"io"
	"strings"
)

// page collects lines.
type page struct {
	Options
	painter
	lines []string
}

func newPage(o Options) *page {
	o = o.filled()
	return &page{Options: o, painter: newPainter(o.Color)}
}

func (p *page) add(lines ...string) { p.lines = append(p.lines, lines...) }

// left is the number of lines that may follow.
func (p *page) left() int { return max(p.MaxRows-len(p.lines), 0) }

// write hands out the page. On a terminal too narrow or too low for any picture, what is too much is cut off.
// Errors are the writer's business: a picture that nobody sees is not worth reporting.
func (p *page) write(w io.Writer) {
	var b strings.Builder
	for _, line := range p.lines[:min(len(p.lines), p.MaxRows)] {
		b.WriteString(p.style.MaxWidth(p.Width).Render(strings.TrimRight(line, " ")))
		b.WriteByte('\n')
	}
	_, _ = io.WriteString(w, b.String())
}
