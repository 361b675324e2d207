package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"math"
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

// Assignment is a function's partition into pipeline stages, with the free slice on which each segment of a stage runs. An
// instance of the function is started from it.
type Assignment struct {
	Partition  Partition
	Slices     [][]Slice     // by stage and segment
	Latency    time.Duration // of a request that runs every node, with transfers but without waiting
	Bottleneck time.Duration // expected time of the slowest segment: the pipeline completes one request per Bottleneck
	CV         CV            // of the stage times on these slices
	Transfers  time.Duration // the transfer time within Latency
}

// Rate returns the throughput of the pipeline in requests per second, which is limited by its slowest stage.
func (a Assignment) Rate() float64 { return 1 / a.Bottleneck.Seconds() }

// Outstanding returns how many requests the instance may have at once such that the last one is still expected to meet the SLO; 0
// if even a single one may miss it. It is the capacity that package routing uses.
func (a Assignment) Outstanding(slo time.Duration) int {
	if a.Latency > slo {
		return 0
	}
	return int((slo-a.Latency)/max(a.Bottleneck, 1)) + 1
}

// AtOnce returns how many requests the instance should have at once if it has no queue of its own: the fewest that give nine tenths of its throughput,
// because each further one makes all of them wait longer, but no more than it can always have and still answer within the SLO. It is at least 1, and
// exactly 1 on a single slice, where requests run one after another.
func (a Assignment) AtOnce(slo time.Duration) int {
	if a.Partition.Monolithic() {
		return 1
	}
	bottleneck := max(a.Bottleneck, 1)
	enough := (9*a.Latency-1)/(10*bottleneck) + 1 // n requests give n answers per Latency, but at most one per Bottleneck
	return int(max(1, min(enough, slo/bottleneck)))
}

// ComputeSlices returns the number of MIG compute slices that the instance occupies.
func (a Assignment) ComputeSlices() int {
	n := 0
	for _, stage := range a.Slices {
		for _, s := range stage {
			n += s.Kind.Compute
		}
	}
	return n
}

// overhead returns the cost by which assignments of different partitions are compared: the coefficient of variation of the stage times on
// the assigned slices, plus the fraction of the latency that is spent on transfers. It is 0 for a function on one slice.
func (a Assignment) overhead() float64 {
	return float64(a.CV) + a.Transfers.Seconds()/a.Latency.Seconds() // U6, U7
}

// Assign selects a partition of the function and a free slice for each segment (nodes that share one slice) such that each slice holds
// its segment's memory, the worst-case latency including transfers and waiting meets the SLO, and the slowest stage sustains the rate. Of
// the possible assignments of one partition it returns the one with the fewest compute slices, then the least memory, then the least
// latency; the search is exact. Slices of kinds that were not ranked are ignored.
//
// The error is ErrNoFit, ErrRate, ErrSLO, or a *share.FieldError.
func (r *Ranking) Assign(free []Slice, d Demand) (Assignment, error) {
	return r.bestAssignment(r.partitions, free, d)
}

// Monolithic is like Assign, but runs the whole function on one slice, which is how the schedulers ESG and INFless assign functions. It
// also finds the slice to which a pipeline can migrate.
func (r *Ranking) Monolithic(free []Slice, d Demand) (Assignment, error) {
	at := slices.IndexFunc(r.partitions, func(p rankedPartition) bool { return p.Monolithic() })
	return r.bestAssignment(r.partitions[max(at, 0):at+1], free, d)
}

// bestAssignment returns the assignment of least overhead among the first d.Candidates of the given partitions that fit the free slices.
func (r *Ranking) bestAssignment(partitions []rankedPartition, free []Slice, d Demand) (Assignment, error) {
	if err := d.validate(); err != nil {
		return Assignment{}, err
	}
	byKind, err := r.groupByKind(free)
	if err != nil {
		return Assignment{}, err
	}
	var best Assignment
	found, closest := 0, ErrNoFit
	for i := range partitions {
		a, err := r.assignPartition(&partitions[i], byKind, d)
		if err != nil {
			closest = furthestError(closest, err)
			continue
		}
		if found == 0 || a.overhead() < best.overhead() {
			best = a
		}
		if found++; found >= d.Candidates {
			break
		}
	}
	if found == 0 {
		return Assignment{}, fmt.Errorf("%.64q: %w", r.function.Name, closest)
	}
	return best, nil
}

// furthestError returns whichever of two errors is the later obstacle to an assignment: ErrSLO, then ErrRate, then ErrNoFit.
func furthestError(a, b error) error {
	for _, e := range []error{ErrSLO, ErrRate} {
		if a == e || b == e {
			return e
		}
	}
	return ErrNoFit
}

// Demand is the request rate that an instance has to sustain and the latency objective that it has to meet.
type Demand struct {
	SLO   time.Duration // maximum time from arrival to reply of one request
	Queue time.Duration // expected time that a request waits before it starts
	Rate  float64       // requests per second that the instance must sustain; 0 means any
	// Candidates is the number of fitting partitions, in the order of the ranking, whose assignments are compared (U7). 0 and 1
	// select the first one that fits, as in the paper of FluidFaaS.
	Candidates int
}

// MaxRate is the largest valid request rate: one request per microsecond.
const MaxRate = 1e6

func (d Demand) validate() error {
	switch {
	case d.SLO <= 0 || d.SLO > 24*time.Hour:
		return share.Invalid("slo", "%v is not above 0 and at most a day", d.SLO)
	case d.Queue < 0 || d.Queue > 24*time.Hour:
		return share.Invalid("queue", "%v is outside 0 to a day", d.Queue)
	case !(d.Rate >= 0 && d.Rate <= MaxRate): // NaN too
		return share.Invalid("rate", "%v requests/s is outside 0 to %g", d.Rate, float64(MaxRate))
	case d.Candidates < 0:
		return share.Invalid("candidates", "%d is negative", d.Candidates)
	}
	return nil
}

// maxSegmentTime returns the longest mean time that a request may spend on one slice of the pipeline so that it sustains the rate.
func (d Demand) maxSegmentTime() time.Duration {
	if d.Rate == 0 {
		return math.MaxInt64
	}
	return time.Duration(min(1e9/d.Rate, math.MaxInt64/2))
}

// The reasons why a function cannot be assigned. With ErrRate its memory fits; with ErrSLO the rate could be sustained, too.
var (
	ErrNoFit = errors.New("no partition fits the free slices: more or larger slices are needed")
	ErrRate  = errors.New("no partition that fits the free slices sustains the rate: larger slices or more instances are needed")
	ErrSLO   = errors.New("no partition that fits the free slices meets the SLO: larger slices or a longer SLO are needed")
)

// Assignments returns an assignment for each partition that fits the free slices, in the order of the ranking. The first is that of Assign with one
// candidate; the others are to be tried if an assignment turns out to be impossible. The sequence ends after maxLooked partial choices, because the search
// for a function that only just misses its objective would take some seconds per node. The error is a *share.FieldError.
func (r *Ranking) Assignments(free []Slice, d Demand) (iter.Seq[Assignment], error) {
	if err := d.validate(); err != nil {
		return nil, err
	}
	byKind, err := r.groupByKind(free)
	if err != nil {
		return nil, err
	}
	return func(yield func(Assignment) bool) { r.assignEach(byKind, d, maxLooked, yield) }, nil
}

// assignEach yields the assignments of partitions until it has looked at `most` partial choices or more. It returns how many it has
// looked at.
func (r *Ranking) assignEach(free [][]Slice, d Demand, most int, yield func(Assignment) bool) (looked int) {
	for i := 0; i < len(r.partitions) && looked < most; i++ {
		a, ok, n := r.assignWithin(&r.partitions[i], free, d)
		looked += n
		if ok && !yield(a) {
			break
		}
	}
	return looked
}

// maxLooked bounds the partial choices that Assignments looks at; some million of them take a second.
const maxLooked = 1_000_000

// Layout says which nodes of a function run on which slices. gshare's Python module run reads it.
type Layout struct {
	Version  int         `json:"version"` // LayoutVersion
	Function string      `json:"function"`
	Stages   [][]LaidOut `json:"stages"` // by stage and segment
}

// LaidOut holds the nodes of one process, in the order of execution, and the slice that the process sees.
type LaidOut struct {
	Nodes []string `json:"nodes"`
	Slice string   `json:"slice"` // Slice.ID, the value of CUDA_VISIBLE_DEVICES
}

// LayoutVersion is the version of the layouts that this package writes.
const LayoutVersion = 1

// Layout returns an assignment from Assign or Monolithic as a layout, with the names of its nodes.
func (r *Ranking) Layout(a Assignment) Layout {
	l := Layout{Version: LayoutVersion, Function: r.function.Name}
	for s, stage := range a.Partition.Stages {
		var laid []LaidOut
		for i, segment := range stage {
			out := LaidOut{Slice: a.Slices[s][i].ID}
			for _, n := range segment {
				out.Nodes = append(out.Nodes, r.function.Nodes[n].Name)
			}
			laid = append(laid, out)
		}
		l.Stages = append(l.Stages, laid)
	}
	return l
}

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
