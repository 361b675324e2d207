package bound

import (
	"math"
	"slices"
)

// AcceptingLimit returns an upper bound, in thousandths of a GPU, of what any policy allocates that accepts what fits. It lowers the limit of
// Accepting by considering the time at which a pod of one shape, the pivot, is refused for the first time.
//
// Because no pod ever ends, room that exists at some time existed at all earlier times. Until the pivot is first refused, there was room for
// it, and hence for every shape that fits wherever the pivot does: all pods of these shapes were accepted. From that time on there is never
// again room for the pivot, nor for a shape that fits only where the pivot does: all pods of these shapes are refused. So a policy cannot
// refuse pods that waste much of a device and still take larger ones. The policy chooses the time of the first refusal; the limit is therefore
// the highest over all times.
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

// bestPivot returns the shape that promises the tightest limit: it decides both on many GPUs of shapes that fit where it does and on many GPUs
// of larger ones.
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

// covers reports whether shape o fits wherever s does, whatever pods are already there.
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

// times is the search for the time of the pivot's first refusal that is best for a policy.
type times struct {
	*Problem
	counts [][]int64 // pods of each shape that have arrived by each checkpoint
	first  []int64   // by shape: number of pods that are certain to be accepted
	pivot  int
	prices []*Prices // found so far
}

// span is the range of times after one checkpoint up to another, with a limit for policies that first refuse the pivot in it.
type span struct {
	from, to int
	milli    int64
	priced   int // number of prices already tried on it
}

// wide is the number of checkpoints above which a span gets no prices of its own, which would hardly lower its limit.
const wide = 8

// highest returns the highest limit over all times. all is a solution for all times together. It repeatedly takes the span with the highest limit
// and lowers that limit: first with the prices found for other spans, then with prices of its own, and then by halving the span. It ends when the
// highest span lies between two successive checkpoints.
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

// price lowers the limit of the span with the prices found so far.
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

// refusing returns the problem of policies that first refuse a pod of the pivot after checkpoint from and by checkpoint to or, if that is the
// last one, never. It returns false if there are no such policies.
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
