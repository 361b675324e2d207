package pipeline

import (
	"math"
	"slices"
	"time"
)

// maxKinds bounds the kinds of a ranking.
const maxKinds = 16

// used is how many slices of each kind are taken. Slices of a kind are alike, so it is all that a choice for some parts
// leaves behind for the others.
type used [maxKinds]uint8

// choice is a way to place the parts up to one. Of those that take the same slices, only the fastest is kept.
type choice struct {
	used    used
	before  time.Duration // worst times of the stages before
	slowest time.Duration // of the parts of this stage so far
	kind    int           // of the last part
	from    *choice       // without the last part
}

// assign finds the assignment of one partition that takes least and keeps the demand.
func (r *Ranking) assign(p *ranked, stock [][]Slice, d Demand) (Assignment, error) {
	choices := p.search(stock, d.slowest())
	if len(choices) == 0 {
		if d.Rate > 0 && len(p.search(stock, math.MaxInt64)) > 0 {
			return Assignment{}, ErrRate
		}
		return Assignment{}, ErrRoom
	}
	budget := d.SLO - d.Queue - r.transfers(p)
	choices = slices.DeleteFunc(choices, func(c *choice) bool { return c.before > budget })
	if len(choices) == 0 {
		return Assignment{}, ErrSLO
	}
	return r.assignment(p, stock, slices.MinFunc(choices, r.bySize)), nil
}

// transfers is what a request spends between stages: one transfer from each to the next (U8).
func (r *Ranking) transfers(p *ranked) time.Duration {
	return time.Duration(len(p.Stages)-1) * r.function.Transfer
}

// search lists, for each set of slices on which no part is slower than the bound, the fastest way to place all parts. It
// is a dynamic program over the parts whose state is how many slices of each kind are taken.
func (p *ranked) search(stock [][]Slice, bound time.Duration) []*choice {
	if p.Slices() > count(stock) {
		return nil
	}
	layer := []*choice{{}}
	for _, stage := range p.fits {
		for i := range stage {
			layer = extend(layer, &stage[i], stock, bound)
		}
		layer = closeStage(layer)
	}
	return layer
}

// extend places one more part of a stage, on every kind that runs it and has a slice left.
func extend(layer []*choice, part *fit, stock [][]Slice, bound time.Duration) []*choice {
	type state struct {
		used    used
		slowest time.Duration
	}
	at := map[state]int{}
	var next []*choice
	for _, c := range layer {
		for k, worst := range part.worst {
			if worst == 0 || part.expected[k] > bound || int(c.used[k]) == len(stock[k]) {
				continue
			}
			grown := choice{used: c.used, before: c.before, slowest: max(c.slowest, worst), kind: k, from: c}
			grown.used[k]++
			key := state{grown.used, grown.slowest}
			if i, seen := at[key]; !seen {
				at[key] = len(next)
				next = append(next, &grown)
			} else if grown.before < next[i].before {
				next[i] = &grown
			}
		}
	}
	return next
}

// closeStage adds the slowest part of the stage to the time before the next: parts of a stage run at the same time.
func closeStage(layer []*choice) []*choice {
	at := map[used]int{}
	var next []*choice
	for _, c := range layer {
		c.before, c.slowest = c.before+c.slowest, 0
		if i, seen := at[c.used]; !seen {
			at[c.used] = len(next)
			next = append(next, c)
		} else if c.before < next[i].before {
			next[i] = c
		}
	}
	return next
}

// assignment gives each part a slice of the kind chosen for it.
func (r *Ranking) assignment(p *ranked, stock [][]Slice, last *choice) Assignment {
	kinds := make([]int, p.Slices())
	for i, c := len(kinds)-1, last; i >= 0; i, c = i-1, c.from {
		kinds[i] = c.kind
	}
	a := Assignment{Partition: p.Partition, Transfers: r.transfers(p)}
	var taken used
	var times []time.Duration
	for _, stage := range p.fits {
		var on []Slice
		worst, expected := time.Duration(0), time.Duration(0)
		for i := range stage {
			k := kinds[0]
			on, kinds = append(on, stock[k][taken[k]]), kinds[1:]
			taken[k]++
			worst, expected = max(worst, stage[i].worst[k]), max(expected, stage[i].expected[k])
		}
		a.Slices, times = append(a.Slices, on), append(times, expected)
		a.Latency += worst
		a.Bottleneck = max(a.Bottleneck, expected)
	}
	a.Latency += a.Transfers
	a.CV = Variation(times)
	return a
}
