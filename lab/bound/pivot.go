package bound

import (
	"math"
	"slices"
)

// AcceptingLimit returns, in thousandths of a GPU, what no policy exceeds that accepts what fits. It is the limit of Accepting, lowered by what
// follows from the time at which a pod of one shape, the pivot, is refused for the first time.
//
// As nothing ends, room for a pod was room at any time before. Until that time there was room for the pivot, and so for every shape that fits
// wherever the pivot does: their pods were accepted. At that time there is no room for the pivot, and so never again for a shape that
// fits only where the pivot does: their pods are refused from then on. A policy thus cannot leave out pods that waste much of a device and
// still take larger ones. When that time is, the policy chooses: the limit is the highest over all times.
func (p *Problem) AcceptingLimit() int64 {
	all := p.Accepting().Solve()
	pivot, ok := p.bestPivot()
	if !ok {
		return all.Milli
	}
	counts := p.countArrivals()
	t := times{Problem: p, counts: counts, first: p.acceptedFirst(counts), pivot: pivot}
	return t.highest(all)
}

// bestPivot returns the shape that promises most: one of many GPUs that also decides on many GPUs of larger ones.
func (p *Problem) bestPivot() (int, bool) {
	best, most := -1, 0.0
	for k := range p.shapes {
		var below, above float64
		for i := range p.shapes {
			gpu := float64(p.shapes[i].gpu() * p.shapes[i].demand)
			if p.shapes[k].covers(&p.shapes[i]) {
				below += gpu
			}
			if i != k && p.shapes[i].covers(&p.shapes[k]) {
				above += gpu
			}
		}
		if below*above > most {
			best, most = k, below*above
		}
	}
	return best, best >= 0
}

// covers reports whether the other shape fits, beside any pods, wherever this one does.
func (s *shape) covers(o *shape) bool {
	if s.cpu < o.cpu || s.bytes < o.bytes || s.gpus < o.gpus || o.gpus > 0 && s.milli < o.milli {
		return false
	}
	for t := range s.fits {
		if s.fits[t] && !o.fits[t] {
			return false
		}
	}
	return true
}

// times is the search for the time at which the pivot is best refused for the first time.
type times struct {
	*Problem
	counts [][]int64 // pods of each shape that have arrived by each checkpoint
	first  []int64   // of each shape, that are accepted for certain
	pivot  int
	prices []*Prices // found so far
}

// span is a time after one checkpoint and not after another, and a limit for policies that refuse the pivot first then.
type span struct {
	from, to int
	milli    int64
	priced   int // how many of the prices found were tried
}

// wide is the number of checkpoints in a span for which no prices of its own are sought: they would hardly lower the limit.
const wide = 8

// highest returns the highest limit over all times, given a solution for all of them. It looks at the span that has the highest so far, first with
// the prices found for others, then with its own, and then halves it. It ends when that span is between two checkpoints.
func (t *times) highest(all Solution) int64 {
	t.prices = append(t.prices, all.Prices)
	list := []span{{to: len(t.counts) - 1, milli: all.Milli, priced: 1}}
	solved := map[[2]int]bool{}
	for {
		at := 0
		for i := range list {
			if list[i].milli >= list[at].milli {
				at = i
			}
		}
		s := &list[at]
		key, width := [2]int{s.from, s.to}, s.to-s.from
		switch {
		case s.priced < len(t.prices):
			t.price(s)
		case width <= wide && !solved[key]:
			t.solve(s)
			solved[key] = true
		case width <= 1:
			return s.milli
		default:
			later := *s
			later.from = s.from + width/2
			s.to, s.priced, later.priced = later.from, 0, 0
			list = append(list, later)
		}
	}
}

// price lowers the limit of the span by the prices found so far.
func (t *times) price(s *span) {
	p, ok := t.refusing(s.from, s.to)
	if !ok {
		s.milli = math.MinInt64
	}
	for ; s.priced < len(t.prices); s.priced++ {
		if ok {
			s.milli = min(s.milli, p.Limit(t.prices[s.priced]))
		}
	}
}

// solve finds prices for the span.
func (t *times) solve(s *span) {
	if p, ok := t.refusing(s.from, s.to); ok {
		found := p.Solve()
		s.milli = min(s.milli, found.Milli)
		t.prices = append(t.prices, found.Prices)
		s.priced = len(t.prices)
	}
}

// refusing returns the problem of policies that refuse a pod of the pivot for the first time after the one checkpoint and not after the other,
// or, if that is the last, never. It returns false if there are none.
func (t *times) refusing(from, to int) (*Problem, bool) {
	pivot := &t.shapes[t.pivot]
	least, most := slices.Clone(t.first), make([]int64, len(t.shapes))
	for i := range t.shapes {
		s := &t.shapes[i]
		most[i] = s.demand
		if pivot.covers(s) {
			least[i] = max(least[i], t.counts[from][i])
		}
		if s.covers(pivot) {
			most[i] = min(most[i], t.counts[to][i])
		}
		if least[i] > most[i] {
			return nil, false
		}
	}
	return t.taking(least, most), true
}
