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

// levelLegend returns the overview's legend: which character stands for how full a GPU.
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
