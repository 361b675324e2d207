package gpumap

import (
	"fmt"
	"io"
	"strings"
)

// Overview draws every GPU as one character that shows how much of its SM-time is promised, by model and node, with a
// line of numbers for each model.
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

// title says how much there is and how much of it is promised.
func (p *page) title(t sums) []string {
	words := []string{p.strong(number(t.all(), "GPU")), number(t.nodes, "node")}
	return flow(append(words, allocatedText(t)...), " · ", p.Width)
}

// promised is the usage in words for those who read it first.
func allocatedText(t sums) []string {
	words := usage(t)
	words[0] += " allocated"
	return words
}

// usage is how much SM-time and memory the shares have.
func usage(t sums) []string {
	words := []string{t.mean().Percent() + " of SM-time"}
	if t.have > 0 {
		words = append(words, part(int64(t.memory), int64(t.have)).Percent()+" of "+bytes(t.have)+" memory")
	}
	return words
}

// scale explains the characters.
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

// models draws the groups, as many as there is room for, and shares the lines among them.
func (p *page) models(list []group) {
	heads := make([][]string, len(list))
	for at, g := range list {
		heads[at] = append([]string{""}, p.head(g)...)
	}
	shown, lines := room(heads, p.left())
	need, rows := make([]int, shown), make([][]row, shown)
	for at := range need {
		rows[at] = list[at].rows(p.Width)
		need[at] = len(rows[at])
	}
	for at, got := range deal(lines, need) {
		p.add(heads[at]...)
		p.grid(list[at], rows[at], got)
	}
	if shown < len(list) {
		p.add(p.faint(others(list[shown:], p.Width)))
	}
}

// room says for how many heads there is space with a line of GPUs each, and how many lines are left for GPUs.
func room(heads [][]string, lines int) (shown, left int) {
	for at, h := range heads {
		last := min(1, len(heads)-at-1) // the line that stands for the models left out
		if len(h)+1+at+last > lines {
			return at, lines - 1
		}
		lines -= len(h)
	}
	return len(heads), lines
}

// grid draws a group on so many lines. If they are too few, it sums up the middle, since the fullest and the emptiest
// nodes say most.
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

// head is the name and the numbers of a model.
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
