package gpumap

import (
	"io"
	"strings"
)

// page collects the lines of the output, limited to the size of the terminal.
type page struct {
	Options
	painter
	lines []string
}

func newPage(o Options) *page {
	o = o.withDefaults()
	return &page{Options: o, painter: newPainter(o.Color)}
}

func (p *page) addLines(lines ...string) { p.lines = append(p.lines, lines...) }

// linesLeft returns the number of lines that can still be added to the page.
func (p *page) linesLeft() int { return max(p.MaxRows-len(p.lines), 0) }

// write writes the page, truncated to its width and number of lines. It ignores errors of the writer.
func (p *page) write(w io.Writer) {
	var b strings.Builder
	for _, line := range p.lines[:min(len(p.lines), p.MaxRows)] {
		b.WriteString(p.style.MaxWidth(p.Width).Render(strings.TrimRight(line, " ")))
		b.WriteByte('\n')
	}
	_, _ = io.WriteString(w, b.String())
}
