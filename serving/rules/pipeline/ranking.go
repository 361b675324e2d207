package pipeline

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Ranking lists all partitions of a function that the given kinds of slices can run, the most balanced first. It depends neither on load
// nor on which slices are free. It is immutable and safe for concurrent use.
type Ranking struct {
	function   Function
	kinds      []Kind // smallest first
	partitions []rankedPartition
}

// rankedPartition is a partition with the execution times of its segments on each kind of slice.
type rankedPartition struct {
	Partition
	times [][]segmentTimes // by stage and segment
}

// Rank returns the partitions of a function that the given kinds of slices can run, ordered by the coefficient of variation of the stage
// times, then by the number of transfers, then by the number of slices. Errors are *share.FieldError, for instance for a node that fits
// no kind.
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
	known := map[nodeSet]segmentTimes{} // equal segments occur in many partitions
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

// validateKinds returns a *share.FieldError for the first invalid kind of slice, or for the first node that fits none of them.
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
		if smallestKind(r.timesByKind(Segment{i}).worst) < 0 {
			return share.Invalid(fmt.Sprintf("nodes[%d]", i), "%.64q with %d bytes fits none of the kinds on which it was measured", n.Name, n.Memory)
		}
	}
	return nil
}

// rankPartition returns a partition with its execution times and their coefficient of variation, and false if a segment cannot run on any
// kind of slice. The map caches the times of segments, which occur in many partitions.
func (r *Ranking) rankPartition(g *graph, stages [][]nodeSet, known map[nodeSet]segmentTimes) (rankedPartition, bool) {
	var p rankedPartition
	var times []time.Duration
	for _, sets := range stages {
		var stage Stage
		var fits []segmentTimes
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
			slowest = max(slowest, f.expected[kind]) // parallel segments take as long as the slowest of them
		}
		p.Stages, p.times, times = append(p.Stages, stage), append(p.times, fits), append(times, slowest)
	}
	p.CV = Variation(times)
	return p, true
}

// nodeIndexes returns the nodes of a set, which are positions in the topological order, as indexes into Function.Nodes.
func (g *graph) nodeIndexes(nodes nodeSet) Segment {
	var p Segment
	nodes.forEach(func(at int) { p = append(p, g.order[at]) })
	return p
}

// Partitions returns all partitions of the function that the ranked kinds of slices can run, the most balanced first.
func (r *Ranking) Partitions() []Partition {
	list := make([]Partition, len(r.partitions))
	for i, p := range r.partitions {
		list[i] = p.Partition
	}
	return list
}

// Function returns the function whose partitions are ranked.
func (r *Ranking) Function() Function { return r.function }

// segmentTimes holds the execution times of a segment (nodes that share one slice) on each kind of slice; 0 if it cannot run there.
type segmentTimes struct {
	worst    []time.Duration // with every node; used for latency
	expected []time.Duration // with nodes weighed by their chance; used for throughput
}

// timesByKind returns the execution times of a segment (nodes that share one slice) on all ranked kinds of slices.
func (r *Ranking) timesByKind(p Segment) segmentTimes {
	memory := share.Bytes(0)
	for _, i := range p {
		memory += r.function.Nodes[i].Memory
	}
	f := segmentTimes{make([]time.Duration, len(r.kinds)), make([]time.Duration, len(r.kinds))}
	for k, kind := range r.kinds {
		if memory <= kind.Memory {
			f.worst[k], f.expected[k] = r.timesOn(p, kind)
		}
	}
	return f
}

// timesOn returns the worst-case and the expected time of a segment on one kind of slice: the sums over its nodes, which run one after
// another. Both are 0 if a node was not measured on this kind.
func (r *Ranking) timesOn(p Segment, kind Kind) (worst, expected time.Duration) {
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

// smallestKind returns the index of the smallest kind of slice that can run a segment, or a negative number. worst holds the
// segment's time on each kind, 0 if it cannot run there.
func smallestKind(worst []time.Duration) int {
	return slices.IndexFunc(worst, func(t time.Duration) bool { return t > 0 })
}
