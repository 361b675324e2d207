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
		p.add("no GPUs")
		return
	}
	list := groups(gpus)
	p.add(p.title(total(list))...)
	p.add(p.scale()...)
	p.models(list)
}

// title returns the first line of the overview, with the totals of all GPUs.
func (p *page) title(t sums) []string {
	words := []string{p.strong(number(t.all(), "GPU")), number(t.nodes, "node")}
	return flow(append(words, allocatedText(t)...), " · ", p.Width)
}

// allocatedText returns the allocated SM-time and memory as phrases, of which the first ends with "allocated".
func allocatedText(t sums) []string {
	words := usage(t)
	words[0] += " allocated"
	return words
}

// usage returns the allocated SM-time and memory as phrases, such as "40% of SM-time".
func usage(t sums) []string {
	words := []string{t.mean().Percent() + " of SM-time"}
	if t.have > 0 {
		words = append(words, part(int64(t.memory), int64(t.have)).Percent()+" of "+bytes(t.have)+" memory")
	}
	return words
}

// scale returns the overview's legend: which character stands for how full a GPU.
func (p *page) scale() []string {
	var partly strings.Builder
	for l := empty + 1; l < full; l++ {
		partly.WriteString(p.level(l, 1))
	}
	return flow([]string{
		p.level(empty, 1) + p.faint(" empty"),
		partly.String() + p.faint(" partly"),
		p.level(full, 1) + p.faint(" full (from 95%)"),
		p.faint("1 character = 1 GPU"),
	}, "  ", p.Width)
}

// models draws as many GPU models as the page has lines for. Each gets lines according to its number of GPUs.
func (p *page) models(list []group) {
	heads := make([][]string, len(list))
	for at, g := range list {
		heads[at] = append([]string{""}, p.head(g)...)
	}
	shown, lines := fittingHeads(heads, p.left())
	need, rows := make([]int, shown), make([][]row, shown)
	for at := range need {
		rows[at] = list[at].rows(p.Width)
		need[at] = len(rows[at])
	}
	for at, got := range distribute(lines, need) {
		p.add(heads[at]...)
		p.grid(list[at], rows[at], got)
	}
	if shown < len(list) {
		p.add(p.faint(others(list[shown:], p.Width)))
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

// grid draws the GPUs of a model on the given number of lines. If they need more lines, it draws the fullest and the emptiest nodes, and a
// summary of the others in between.
func (p *page) grid(g group, rows []row, lines int) {
	if lines >= len(rows) {
		p.paint(rows)
		return
	}
	top := max(lines, 1) / 2
	bottom := len(rows) - (max(lines, 1) - 1 - top)
	p.paint(rows[:top])
	p.add(p.faint(more(g.model, counted(rows[top:bottom]), top > 0, p.Width)))
	p.paint(rows[bottom:])
}

func (p *page) paint(rows []row) {
	for _, r := range rows {
		p.add(r.paint(p.painter))
	}
}

// head returns the heading of a GPU model in the overview: its name and totals.
func (p *page) head(g group) []string {
	name := p.strong(shorten(g.model, p.Width/2)) + "  "
	words := []string{name + number(g.all(), "GPU"), number(g.sums.nodes, "node")}
	numbers := flow(append(words, usage(g.sums)...), " · ", p.Width)
	return append(numbers, flow([]string{
		p.histogram(g.counts, min(24, p.Width/3)),
		fmt.Sprint(g.full, " full"),
		fmt.Sprint(g.partly, " partly"),
		fmt.Sprint(g.empty, " empty"),
	}, "  ", p.Width)...)
}
