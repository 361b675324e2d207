package pipeline

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// maxKinds is the largest number of kinds of slices that a Ranking can consider.
const maxKinds = 16

// slicesUsed counts the slices of each kind that a search has assigned so far. Slices of a kind are interchangeable, so these counts
// alone determine how the search can continue.
type slicesUsed [maxKinds]uint8

// partialChoice is an intermediate result of the search for an assignment: the kinds of slices for the first segments of a pipeline.
// Among choices that use the same number of slices of each kind, only the fastest is kept.
type partialChoice struct {
	used    slicesUsed
	before  time.Duration  // sum of the worst times of the previous stages
	slowest time.Duration  // worst time of the segments of this stage so far
	kind    int            // of the last segment
	from    *partialChoice // the choice without the last segment
}

// assignPartition returns the assignment of one partition that needs the smallest slices and satisfies the demand, or ErrNoFit, ErrRate
// or ErrSLO.
func (r *Ranking) assignPartition(p *rankedPartition, free [][]Slice, d Demand) (Assignment, error) {
	choices, _ := p.searchChoices(free, d.maxSegmentTime(), math.MaxInt64)
	if len(choices) == 0 {
		if d.Rate > 0 {
			if others, _ := p.searchChoices(free, math.MaxInt64, math.MaxInt64); len(others) > 0 {
				return Assignment{}, ErrRate
			}
		}
		return Assignment{}, ErrNoFit
	}
	budget := d.SLO - d.Queue - r.transferTime(p) // U8
	choices = slices.DeleteFunc(choices, func(c *partialChoice) bool { return c.before > budget })
	if len(choices) == 0 {
		return Assignment{}, ErrSLO
	}
	return r.newAssignment(p, free, slices.MinFunc(choices, r.compareSize)), nil
}

// assignWithin returns the result of assignPartition, and false where that returns an error. It does not find out which error: doing so for the thousands
// of partitions of a large function would take hours if none of them meets the SLO. It also returns how many choices it has looked at.
func (r *Ranking) assignWithin(p *rankedPartition, free [][]Slice, d Demand) (a Assignment, ok bool, looked int) {
	budget := d.SLO - d.Queue - r.transferTime(p)
	if p.leastTime(free) > budget {
		return Assignment{}, false, 1
	}
	choices, looked := p.searchChoices(free, d.maxSegmentTime(), budget)
	if len(choices) == 0 {
		return Assignment{}, false, looked
	}
	return r.newAssignment(p, free, slices.MinFunc(choices, r.compareSize)), true, looked
}

// leastTime returns the time of a request, without transfers, if each segment runs on the fastest kind that has a free slice; math.MaxInt64 if a
// segment can run on none.
func (p *rankedPartition) leastTime(free [][]Slice) (sum time.Duration) {
	for _, stage := range p.times {
		slowest := time.Duration(0)
		for i := range stage {
			fastest := time.Duration(math.MaxInt64)
			for k, worst := range stage[i].worst {
				if worst != 0 && len(free[k]) > 0 {
					fastest = min(fastest, worst)
				}
			}
			if fastest == math.MaxInt64 {
				return fastest
			}
			slowest = max(slowest, fastest)
		}
		sum += slowest
	}
	return sum
}

// transferTime returns the time that a request spends between the stages of a partition: one transfer from each stage to the next.
func (r *Ranking) transferTime(p *rankedPartition) time.Duration {
	return time.Duration(len(p.Stages)-1) * r.function.Transfer
}

// searchChoices returns, for each combination of free slices on which no segment is slower than the bound, the fastest assignment of all segments that
// stays within the budget. It is a dynamic program over the segments, with the number of used slices of each kind as its state. It also returns how many
// partial choices it has looked at.
func (p *rankedPartition) searchChoices(free [][]Slice, bound, budget time.Duration) (all []*partialChoice, looked int) {
	if p.Slices() > totalSlices(free) {
		return nil, 1
	}
	layer := []*partialChoice{{}}
	for _, stage := range p.times {
		for i := range stage {
			layer = extendChoices(layer, &stage[i], free, bound, budget)
			looked += 1 + len(layer)
		}
		layer = closeStage(layer)
	}
	return layer, looked
}

// extendChoices adds the next segment of a stage to each intermediate result of the search, once for every kind of slice that can run the
// segment within the bound and has a free slice. It drops results that exceed the budget.
func extendChoices(layer []*partialChoice, part *segmentTimes, free [][]Slice, bound, budget time.Duration) []*partialChoice {
	type state struct {
		used    slicesUsed
		slowest time.Duration
	}
	at := map[state]int{}
	var next []*partialChoice
	for _, c := range layer {
		for k, worst := range part.worst {
			if worst == 0 || part.expected[k] > bound || int(c.used[k]) == len(free[k]) {
				continue
			}
			grown := partialChoice{used: c.used, before: c.before, slowest: max(c.slowest, worst), kind: k, from: c}
			if grown.before > budget-grown.slowest {
				continue
			}
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

// closeStage completes a stage in each intermediate result of the search. The stage takes as long as its slowest segment, since its
// segments run in parallel.
func closeStage(layer []*partialChoice) []*partialChoice {
	at := map[slicesUsed]int{}
	var next []*partialChoice
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

// newAssignment returns the assignment for a complete search result, with the first free slices of each chosen kind.
func (r *Ranking) newAssignment(p *rankedPartition, free [][]Slice, last *partialChoice) Assignment {
	kinds := make([]int, p.Slices())
	for i, c := len(kinds)-1, last; i >= 0; i, c = i-1, c.from {
		kinds[i] = c.kind
	}
	var taken slicesUsed
	var on [][]Slice
	for _, stage := range p.times {
		var has []Slice
		for range stage {
			k := kinds[0]
			has, kinds = append(has, free[k][taken[k]]), kinds[1:]
			taken[k]++
		}
		on = append(on, has)
	}
	return r.assignment(p, on)
}

// groupByKind returns the free slices of each ranked kind, sorted by ID. Slices of other kinds are ignored.
func (r *Ranking) groupByKind(free []Slice) ([][]Slice, error) {
	byKind, seen := make([][]Slice, len(r.kinds)), make(map[string]bool, len(free))
	for i, s := range free {
		if s.ID == "" || seen[s.ID] {
			return nil, share.Invalid(fmt.Sprintf("free[%d].id", i), "%.64q is empty or repeated", s.ID)
		}
		seen[s.ID] = true
		if k := slices.Index(r.kinds, s.Kind); k >= 0 {
			byKind[k] = append(byKind[k], s)
		}
	}
	for _, s := range byKind {
		slices.SortFunc(s, func(a, b Slice) int { return cmp.Compare(a.ID, b.ID) })
	}
	return byKind, nil
}

// compareSize orders complete search results by compute slices, then memory, then latency.
func (r *Ranking) compareSize(a, b *partialChoice) int {
	computeA, memoryA := r.sizeOf(a.used)
	computeB, memoryB := r.sizeOf(b.used)
	return cmp.Or(cmp.Compare(computeA, computeB), cmp.Compare(memoryA, memoryB), cmp.Compare(a.before, b.before)) // U9
}

// sizeOf returns the total compute slices and memory of the slices in use.
func (r *Ranking) sizeOf(u slicesUsed) (compute int, memory share.Bytes) {
	for k, kind := range r.kinds {
		compute += int(u[k]) * kind.Compute
		memory += share.Bytes(u[k]) * kind.Memory
	}
	return compute, memory
}

func totalSlices(byKind [][]Slice) int {
	n := 0
	for _, s := range byKind {
		n += len(s)
	}
	return n
}
