package pipeline

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Ranking is the list of all partitions of a function that the given kinds of slices can run, the most balanced first (FF-33).
// It depends neither on load nor on free slices. It is immutable and safe for concurrent use.
type Ranking struct {
	function   Function
	kinds      []Kind // smallest first
	partitions []rankedPartition
}

// ranked is a partition with the times of its parts.
type rankedPartition struct {
	Partition
	times [][]partTimes // by stage and part
}

// Rank returns the ranking of a function: its partitions by CV, then number of transfers, then number of slices (U6), without
// those that have a part that no kind can run. Errors are *share.FieldError, also for a node that fits no kind.
func Rank(f Function, kinds []Kind) (*Ranking, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	r := &Ranking{function: f, kinds: slices.SortedFunc(slices.Values(kinds), Kind.Compare)}
	if err := r.validateKinds(); err != nil {
		return nil, err
	}
	g, err := f.graph()
	if err != nil {
		return nil, err
	}
	known := map[nodeSet]partTimes{} // the same parts occur in many partitions
	for _, stages := range g.partitions() {
		if p, ok := r.rankPartition(g, stages, known); ok {
			r.partitions = append(r.partitions, p)
		}
	}
	slices.SortStableFunc(r.partitions, func(a, b rankedPartition) int {
		return cmp.Or(cmp.Compare(a.CV, b.CV), cmp.Compare(len(a.Stages), len(b.Stages)), cmp.Compare(a.Slices(), b.Slices()))
	})
	return r, nil
}

// validateKinds reports the first invalid kind, or the first node that fits none of them.
func (r *Ranking) validateKinds() error {
	if len(r.kinds) == 0 || len(r.kinds) > maxKinds {
		return share.Invalid("kinds", "%d of them; want 1 to %d", len(r.kinds), maxKinds)
	}
	names := map[string]bool{}
	for i, k := range r.kinds {
		if err := k.validate(fmt.Sprintf("kinds[%d]", i)); err != nil {
			return err
		}
		if names[k.Name] {
			return share.Invalid("kinds", "%.64q is repeated", k.Name)
		}
		names[k.Name] = true
	}
	for i, n := range r.function.Nodes {
		if smallestKind(r.timesByKind(Part{i}).worst) < 0 {
			return share.Invalid(fmt.Sprintf("nodes[%d]", i), "%.64q with %d bytes fits none of the kinds on which it was measured", n.Name, n.Memory)
		}
	}
	return nil
}

// rank returns a partition with its times and CV; false if a part runs on no kind. known caches the times of parts.
func (r *Ranking) rankPartition(g *graph, stages [][]nodeSet, known map[nodeSet]partTimes) (rankedPartition, bool) {
	var p rankedPartition
	var times []time.Duration
	for _, sets := range stages {
		var stage Stage
		var fits []partTimes
		slowest := time.Duration(0)
		for _, nodes := range sets {
			part := g.nodeIndexes(nodes)
			f, seen := known[nodes]
			if !seen {
				f = r.timesByKind(part)
				known[nodes] = f
			}
			kind := smallestKind(f.worst)
			if kind < 0 {
				return rankedPartition{}, false
			}
			stage, fits = append(stage, part), append(fits, f)
			slowest = max(slowest, f.expected[kind]) // parts at the same time count by their maximum (FF-32)
		}
		p.Stages, p.times, times = append(p.Stages, stage), append(p.times, fits), append(times, slowest)
	}
	p.CV = Variation(times)
	return p, true
}

// part returns a set of nodes as indexes into Function.Nodes, in the order of execution.
func (g *graph) nodeIndexes(nodes nodeSet) Part {
	var p Part
	nodes.forEach(func(at int) { p = append(p, g.order[at]) })
	return p
}

// Partitions returns all partitions, the most balanced first.
func (r *Ranking) Partitions() []Partition {
	list := make([]Partition, len(r.partitions))
	for i, p := range r.partitions {
		list[i] = p.Partition
	}
	return list
}

// Function returns the function that was ranked.
func (r *Ranking) Function() Function { return r.function }

// fit holds the times of one part on each kind, in the order of the kinds; 0 where it does not run.
type partTimes struct {
	worst    []time.Duration // with every node; used for latency
	expected []time.Duration // with nodes weighed by their chance; used for throughput
}

// fit returns the times of a part on all kinds.
func (r *Ranking) timesByKind(p Part) partTimes {
	memory := share.Bytes(0)
	for _, i := range p {
		memory += r.function.Nodes[i].Memory
	}
	f := partTimes{make([]time.Duration, len(r.kinds)), make([]time.Duration, len(r.kinds))}
	for k, kind := range r.kinds {
		if memory <= kind.Memory {
			f.worst[k], f.expected[k] = r.timesOn(p, kind)
		}
	}
	return f
}

// times returns the sum of the times of a part's nodes, which run one after another on a slice; 0 if one was not measured on
// this kind.
func (r *Ranking) timesOn(p Part, kind Kind) (worst, expected time.Duration) {
	for _, i := range p {
		n := &r.function.Nodes[i]
		t, measured := n.Times[kind.Name]
		if !measured {
			return 0, 0
		}
		worst, expected = worst+t, expected+n.expectedTime(t)
	}
	return worst, expected
}

// smallest returns the index of the smallest kind that runs a part, or a negative number.
func smallestKind(worst []time.Duration) int {
	return slices.IndexFunc(worst, func(t time.Duration) bool { return t > 0 })
}
