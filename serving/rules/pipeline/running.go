package pipeline

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// NewRunning returns an instance that was started from a layout in which each slice is the name of one of the kinds. Its ranking contains only the
// layout's partition and the whole function, so it is cheap. The error is a *share.FieldError, for instance if the function has changed since and its
// nodes differ from those of the layout.
func NewRunning(id int, f Function, kinds []Kind, l Layout, d Demand) (RunningInstance, error) {
	if err := d.validate(); err != nil {
		return RunningInstance{}, err
	}
	if err := f.Validate(); err != nil {
		return RunningInstance{}, err
	}
	r := &Ranking{function: f, kinds: slices.SortedFunc(slices.Values(kinds), Kind.Compare)}
	if err := r.validateKinds(); err != nil {
		return RunningInstance{}, err
	}
	g, err := f.graph()
	if err != nil {
		return RunningInstance{}, err
	}
	stages, on, err := r.read(g, l)
	if err != nil {
		return RunningInstance{}, err
	}
	known := map[nodeSet]segmentTimes{}
	present, ok := r.rankPartition(g, stages, known)
	if !ok {
		return RunningInstance{}, share.Invalid("layout", "a part of it fits none of the kinds on which its nodes were measured")
	}
	r.partitions = []rankedPartition{present}
	all := [][]nodeSet{{1<<len(f.Nodes) - 1}}
	if whole, ok := r.rankPartition(g, all, known); ok && !present.Monolithic() {
		r.partitions = append(r.partitions, whole)
	}
	a := r.assignment(&r.partitions[0], on)
	if a.Bottleneck == 0 {
		return RunningInstance{}, share.Invalid("layout", "a part of it does not fit the kind that it has, or was not measured on it")
	}
	return RunningInstance{ID: id, Ranking: r, Assignment: a, Demand: d}, nil
}

// read returns the stages of a layout as sets of positions, and the kinds on which they run. Each node must occur once, after the nodes whose outputs
// it reads.
func (r *Ranking) read(g *graph, l Layout) (stages [][]nodeSet, on [][]Slice, err error) {
	position := map[string]int{}
	for at, i := range g.order {
		position[r.function.Nodes[i].Name] = at
	}
	var before nodeSet
	for _, stage := range l.Stages {
		var sets []nodeSet
		var has []Slice
		done := before
		for _, part := range stage {
			var set nodeSet
			for _, name := range part.Nodes {
				at, known := position[name]
				if !known || done.contains(at) {
					return nil, nil, share.Invalid("layout", "node %.64q is unknown or repeated", name)
				}
				set, done = set|singleton(at), done|singleton(at)
			}
			kind := slices.IndexFunc(r.kinds, func(k Kind) bool { return k.Name == part.Slice })
			if kind < 0 || set == 0 {
				return nil, nil, share.Invalid("layout", "a part has no nodes, or is on an unknown kind: %.64q", part.Slice)
			}
			sets, has = append(sets, set), append(has, Slice{Kind: r.kinds[kind]})
		}
		for _, set := range sets {
			for at := range g.order {
				if set.contains(at) && g.prev[at]&^(before|set) != 0 {
					return nil, nil, share.Invalid("layout", "node %.64q comes before what it reads", r.function.Nodes[g.order[at]].Name)
				}
			}
		}
		stages, on, before = append(stages, sets), append(on, has), done
	}
	if before != 1<<len(g.order)-1 {
		return nil, nil, share.Invalid("layout", "node %.64q is missing", r.function.Nodes[g.order[firstMissing(before)]].Name)
	}
	return stages, on, nil
}

// assignment returns the assignment of a partition to slices of ranked kinds. If a segment cannot run on its slice, the Bottleneck is 0.
func (r *Ranking) assignment(p *rankedPartition, on [][]Slice) Assignment {
	a := Assignment{Partition: p.Partition, Slices: on, Transfers: r.transferTime(p)}
	var times []time.Duration
	for s, stage := range p.times {
		worst, expected := time.Duration(0), time.Duration(0)
		for i := range stage {
			k := slices.Index(r.kinds, on[s][i].Kind)
			if stage[i].worst[k] == 0 {
				return Assignment{}
			}
			worst, expected = max(worst, stage[i].worst[k]), max(expected, stage[i].expected[k])
		}
		times = append(times, expected)
		a.Latency += worst
		a.Bottleneck = max(a.Bottleneck, expected)
	}
	a.Latency += a.Transfers
	a.CV = Variation(times)
	return a
}
