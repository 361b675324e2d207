package gpumap

import (
	"fmt"
	"io"
	"strings"
)

// Overview draws every GPU as one character that shows how much of its SM-time is allocated, grouped by model and node, with totals for
// each model.
func Overview(w io.Writer, gpus []Slice, o Options) {
	p := newPage(o)
	defer p.write(w)
	if len(gpus) == 0 {
		p.addLines("no GPUs")
		return
	}
	list := groups(gpus)
	p.addLines(p.title(sumGroups(list))...)
	p.addLines(p.levelLegend()...)
	p.drawGroups(list)
}

// title returns the first line of the overview, with the totals of all GPUs.
func (p *page) title(t totals) []string {
	words := []string{p.strong(countOf(t.all(), "GPU")), countOf(t.nodes, "node")}
	return joinLines(append(words, allocatedText(t)...), " · ", p.Width)
}

// allocatedText returns the allocated SM-time and memory as phrases, of which the first ends with "allocated".
func allocatedText(t totals) []string {
	words := usage(t)
	words[0] += " allocated"
	return words
}

// usage returns the allocated SM-time and memory as phrases, such as "40% of SM-time".
func usage(t totals) []string {
	words := []string{t.meanAllocated().Percent() + " of SM-time"}
	if t.have > 0 {
		words = append(words, part(int64(t.memory), int64(t.have)).Percent()+" of "+formatMemory(t.have)+" memory")
	}
	return words
}

// levelLegend returns the overview's legend, which says how full a GPU is for each character.
func (p *page) levelLegend() []string {
	var partly strings.Builder
	for l := empty + 1; l < full; l++ {
		partly.WriteString(p.level(l, 1))
	}
	return joinLines([]string{
		p.level(empty, 1) + p.faint(" empty"),
		partly.String() + p.faint(" partly"),
		p.level(full, 1) + p.faint(" full (from 95%)"),
		p.faint("1 character = 1 GPU"),
	}, "  ", p.Width)
}

// drawGroups draws as many GPU models as the page has lines for. Each gets lines according to its number of GPUs.
func (p *page) drawGroups(list []group) {
	heads := make([][]string, len(list))
	for at, g := range list {
		heads[at] = append([]string{""}, p.groupHeading(g)...)
	}
	shown, lines := fittingHeads(heads, p.linesLeft())
	need, rows := make([]int, shown), make([][]row, shown)
	for at := range need {
		rows[at] = list[at].rows(p.Width)
		need[at] = len(rows[at])
	}
	for at, got := range distribute(lines, need) {
		p.addLines(heads[at]...)
		p.drawGroup(list[at], rows[at], got)
	}
	if shown < len(list) {
		p.addLines(p.faint(omittedModels(list[shown:], p.Width)))
	}
}

// fittingHeads returns how many model headings fit on the page together with at least one line of GPUs each, and how many lines are left
// for GPUs.
func fittingHeads(heads [][]string, lines int) (shown, left int) {
	for at, h := range heads {
		last := min(1, len(heads)-at-1) // the line with the number of models left out
		if len(h)+1+at+last > lines {
			return at, lines - 1
		}
		lines -= len(h)
	}
	return len(heads), lines
}

// drawGroup draws the GPUs of a model on the given number of lines. If they need more lines, it draws the fullest and the emptiest nodes, and a
// summary of the others in between.
func (p *page) drawGroup(g group, rows []row, lines int) {
	if lines >= len(rows) {
		p.paint(rows)
		return
	}
	top := max(lines, 1) / 2
	bottom := len(rows) - (max(lines, 1) - 1 - top)
	p.paint(rows[:top])
	p.addLines(p.faint(omittedGPUs(g.model, countLevels(rows[top:bottom]), top > 0, p.Width)))
	p.paint(rows[bottom:])
}

func (p *page) paint(rows []row) {
	for _, r := range rows {
		p.addLines(r.paint(p.painter))
	}
}

// groupHeading returns the heading of a GPU model in the overview: its name and totals.
func (p *page) groupHeading(g group) []string {
	name := p.strong(shorten(g.model, p.Width/2)) + "  "
	words := []string{name + countOf(g.all(), "GPU"), countOf(g.totals.nodes, "node")}
	numbers := joinLines(append(words, usage(g.totals)...), " · ", p.Width)
	return append(numbers, joinLines([]string{
		p.histogram(g.counts, min(24, p.Width/3)),
		fmt.Sprint(g.full, " full"),
		fmt.Sprint(g.partly, " partly"),
		fmt.Sprint(g.empty, " empty"),
	}, "  ", p.Width)...)
}

// histogram returns a thin bar that is divided in proportion to the numbers of full, partly full and empty GPUs.
func (p *page) histogram(c counts, width int) string {
	sizes, parts := []int64{}, []level{}
	for k, n := range []int{c.full, c.partly, c.empty} {
		if n > 0 {
			sizes, parts = append(sizes, int64(n)), append(parts, []level{full, full / 2, empty}[k])
		}
	}
	at := edges(sizes, int64(c.all()), width)
	var b strings.Builder
	for k, l := range parts {
		b.WriteString(p.bar(l, at[k+1]-at[k]))
	}
	return b.String()
}

// omittedGPUs returns the line that stands for the GPUs of a model that the overview does not draw.
func omittedGPUs(model string, rest counts, some bool, width int) string {
	word := ""
	if some {
		word = "more "
	}
	n, model := rest.all(), shorten(model, width/2)
	return firstFitting(width,
		fmt.Sprintf("… %d %sGPUs of model %s: %v", n, word, model, rest),
		fmt.Sprintf("… %d %sof %s: %v", n, word, model, rest),
		fmt.Sprintf("… %d: %v", n, rest),
		fmt.Sprintf("… %d %sof %s", n, word, model),
		fmt.Sprintf("… %d %sGPUs", n, word),
	)
}

// omittedModels returns the line that stands for the GPU models that the overview does not draw.
func omittedModels(list []group, width int) string {
	t := sumGroups(list)
	return firstFitting(width,
		fmt.Sprintf("… %s with %s: %v", countOf(len(list), "more model"), countOf(t.all(), "GPU"), t.counts),
		fmt.Sprintf("… %s, %s", countOf(len(list), "model"), countOf(t.all(), "GPU")),
		fmt.Sprintf("… %s", countOf(t.all(), "GPU")),
	)
}

// String returns the counts that are not zero, such as "398 full, 14 partly".
func (c counts) String() string {
	var words []string
	for _, x := range []struct {
		n    int
		name string
	}{{c.full, "full"}, {c.partly, "partly"}, {c.empty, "empty"}} {
		if x.n > 0 {
			words = append(words, fmt.Sprint(x.n, " ", x.name))
		}
	}
	return strings.Join(words, ", ")
}

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
