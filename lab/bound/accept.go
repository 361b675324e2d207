package bound

import (
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Accepting returns the problem of a policy that accepts what fits: it refuses a pod only if no node has room for it. Such a policy
// chooses nodes and devices, but not pods; it may know all pods beforehand.
//
// No pod ever ends in this problem, so room only shrinks. A pod can be refused only once every node that could hold it is closed to it: by
// lack of CPU, of memory or of room on its devices. Closing nodes takes pods, and the first arrivals are not enough for that. So the first
// pods of each shape must be accepted: all that arrive before enough pods have come to close all these nodes.
//
// AcceptingLimit returns a limit that is lower than that of this problem.
func (p *Problem) Accepting() *Problem {
	most := make([]int64, len(p.shapes))
	for i := range p.shapes {
		most[i] = p.shapes[i].demand
	}
	return p.taking(p.acceptedFirst(p.countArrivals()), most)
}

// taking returns the problem in which, of each shape, at least the given number of pods are accepted and at most the given number arrive.
func (p *Problem) taking(least, most []int64) *Problem {
	out := &Problem{types: p.types, sizes: p.sizes, capacity: p.capacity}
	for i := range p.shapes {
		free, forced := p.shapes[i], p.shapes[i]
		forced.must, forced.demand = true, least[i]
		free.demand = most[i] - least[i]
		for _, s := range []shape{free, forced} {
			if s.demand > 0 {
				out.shapes = append(out.shapes, s)
			}
		}
	}
	return out
}

// checkpoints is the number of times at which the search checks whether nodes can have been closed.
const checkpoints = 64

// countArrivals returns, for each checkpoint, how many pods of each shape have arrived by then.
func (p *Problem) countArrivals() [][]int64 {
	steps := min(checkpoints, len(p.arrivals))
	out := make([][]int64, 0, steps+1)
	now := make([]int64, len(p.shapes))
	arrived := 0
	for step := range steps + 1 {
		for ; arrived < p.checkpoint(step); arrived++ {
			now[p.arrivals[arrived]]++
		}
		out = append(out, slices.Clone(now))
	}
	return out
}

// checkpoint returns how many pods have arrived at the given checkpoint.
func (p *Problem) checkpoint(step int) int {
	return step * len(p.arrivals) / max(1, min(checkpoints, len(p.arrivals)))
}

// acceptedFirst returns, for each shape, how many of its pods are certain to be accepted.
func (p *Problem) acceptedFirst(counts [][]int64) []int64 {
	first := make([]int64, len(p.shapes))
	for i := range p.shapes {
		first[i] = p.acceptedFirstOf(i, counts)
	}
	return first
}

// acceptedFirstOf returns how many of the shape's pods are certain to be accepted: those that arrive by the last checkpoint at which
// some node must still have been open, and the next pod to arrive if it has this shape.
func (p *Problem) acceptedFirstOf(i int, counts [][]int64) int64 {
	if !slices.Contains(p.shapes[i].fits, true) {
		return 0
	}
	c := p.closingOf(&p.shapes[i])
	closed := sort.Search(len(counts), func(step int) bool { return !c.someOpen(counts[step]) })
	if closed == 0 {
		return 0 // not reached: without pods every node is open
	}
	accepted := counts[closed-1][i]
	if next := p.checkpoint(closed - 1); next < len(p.arrivals) && p.arrivals[next] == i {
		accepted++
	}
	return accepted
}

// closing describes how much each pod contributes to closing nodes to one shape.
type closing struct {
	nodes   []int64   // number of nodes of each type that can hold the shape; zero for other types
	part    [][]int64 // distinct rows, by node type: fraction of a node that one pod closes, times unit, rounded up
	row     []int     // index into part, by shape
	weights []int64   // by node type
}

// closingOf returns what it takes to close nodes to the shape k. A node is closed for one of three reasons: its remaining CPU is less than k
// requests, or its remaining memory is, or too few of its devices have enough room left. Whatever the reason, the fractions that the pods on
// the node contribute to it add up to at least one. Because the reason is not known in advance, a pod counts with its greatest fraction.
func (p *Problem) closingOf(k *shape) *closing {
	c := &closing{}
	for t, n := range p.types {
		if !k.fits[t] {
			n.count = 0
		}
		c.nodes = append(c.nodes, n.count)
		c.weights = append(c.weights, 256*max(1, n.gpus))
	}
	known := map[string]int{}
	for i := range p.shapes {
		row := make([]int64, len(p.types))
		for t := range p.types {
			if c.nodes[t] > 0 && p.shapes[i].fits[t] {
				row[t] = partOf(&p.shapes[i], k, &p.types[t])
			}
		}
		key := fmt.Sprint(row)
		if _, ok := known[key]; !ok {
			known[key] = len(c.part)
			c.part = append(c.part, row)
		}
		c.row = append(c.row, known[key])
	}
	return c
}

// partOf returns the fraction of a node that a pod of shape s closes to k. It corrects for memory having been rounded to whole MiB.
func partOf(s, k *shape, n *nodeType) int64 {
	part := max(ratio(s.cpu, n.cpu-k.cpu+1), ratio(s.memory+1, n.memory-k.memory-2))
	if k.gpus > 0 && s.gpus > 0 {
		device := ratio(s.milli, whole-k.milli+1)
		part = max(part, ratio(s.gpus*device, (n.gpus-k.gpus+1)*unit))
	}
	return part
}

// ratio returns a/b times unit, rounded up and at most unit.
func ratio(a, b int64) int64 {
	if a >= b {
		return unit
	}
	return (a*unit + b - 1) / b
}

// someOpen reports whether some node is certain to be open to the shape when the given numbers of pods have arrived, whichever of them were
// accepted and wherever they are. It looks for weights of node types with which all nodes together weigh more than the pods can close.
func (c *closing) someOpen(arrived []int64) bool {
	pods := make([]int64, len(c.part))
	for i, n := range arrived {
		pods[c.row[i]] += n
	}
	weights := slices.Clone(c.weights)
	all, closed := c.weigh(weights, pods)
	improved := true
	for pass := 0; improved && all <= closed && pass < 4; pass++ {
		improved = false
		for t := range weights {
			for _, step := range [...][2]int64{{0, 1}, {1, 2}, {7, 8}, {9, 8}, {2, 1}} {
				old := weights[t]
				weights[t] = min(old*step[0]/step[1], 1<<16)
				nowAll, nowClosed := c.weigh(weights, pods)
				if nowAll > 0 && float64(nowAll)*float64(closed) > float64(all)*float64(nowClosed)*(1+1e-6) {
					all, closed, improved = nowAll, nowClosed, true
				} else {
					weights[t] = old
				}
			}
		}
	}
	return all > closed
}

// weigh returns the weight of all nodes, and the most weight that the pods can close. pods counts them by their row of part.
func (c *closing) weigh(weights, pods []int64) (all, closed int64) {
	for t, n := range c.nodes {
		all += n * weights[t] * unit
	}
	for i, row := range c.part {
		most := int64(0)
		for t, part := range row {
			most = max(most, part*weights[t])
		}
		closed += pods[i] * most
	}
	return all, closed
}

// PackAccepting returns the thousandths of a GPU that one particular policy allocates that knows all pods beforehand and accepts what fits: no
// limit for such policies can be lower. The policy plans a packing of the pods that arrive until some time, together with small pods that arrive
// later, so that large pods find no room from then on. It then lets the pods arrive, and gives each the place that the packing reserves for a
// pod of its shape. A pod without such a place goes where it does the least harm, if there is any room for it. PackAccepting tries several
// times, and several sizes from which a pod counts as large, and returns the best result.
func (p *Problem) PackAccepting(tries int) int64 {
	counts, limit := p.countArrivals(), p.Solve().Milli
	best := int64(0)
	for _, large := range []int64{400, 800} {
		step := len(counts) - 1
		for step > 0 && p.demandOf(p.countUntil(counts[step], large)) > limit {
			step--
		}
		for at := max(0, step-1); at < min(len(counts), step+3); at++ {
			f := p.follow(p.planned(p.countUntil(counts[at], large), tries))
			best = max(best, f.allocated())
		}
	}
	return best
}

// countUntil returns how many pods of each shape to pack: of shapes with at least large thousandths of a GPU, or without GPUs, those that have
// arrived; of the others, all.
func (p *Problem) countUntil(arrived []int64, large int64) []int64 {
	most := make([]int64, len(p.shapes))
	for i := range p.shapes {
		s := &p.shapes[i]
		if most[i] = s.demand; s.gpus == 0 || s.gpu() >= large {
			most[i] = arrived[i]
		}
	}
	return most
}

// demandOf returns the thousandths of a GPU that the given number of pods of each shape request.
func (p *Problem) demandOf(count []int64) (milli int64) {
	for i, n := range count {
		milli += n * p.shapes[i].gpu()
	}
	return milli
}

// planned returns places for a selection of at most the given number of pods of each shape.
func (p *Problem) planned(most []int64, tries int) *packer {
	some := &Problem{types: p.types, sizes: p.sizes, capacity: p.capacity}
	var number []int // index of the shape in p
	for i, n := range most {
		if s := p.shapes[i]; n > 0 {
			s.demand, s.must = n, s.gpus == 0
			some.shapes, number = append(some.shapes, s), append(number, i)
		}
	}
	if len(some.shapes) == 0 {
		return Solution{problem: some}.newPacker()
	}
	plan := some.Solve().pack(tries)
	for i := range plan.bins {
		for j := range plan.bins[i].pods {
			pod := &plan.bins[i].pods[j]
			pod.shape = number[pod.shape]
		}
	}
	return plan
}

// follower lets pods arrive and follows a plan as closely as it can without refusing what fits.
type follower struct {
	*packer
	kept  []bin   // by node: resources that the plan keeps for pods to come
	slots [][]int // by shape: nodes on which the plan has a place for a pod
}

func (p *Problem) follow(plan *packer) *follower {
	f := &follower{packer: Solution{problem: p}.newPacker(), slots: make([][]int, len(p.shapes))}
	for i := range plan.bins {
		k := bin{free: make([]int64, len(plan.bins[i].free)), pods: plan.bins[i].pods}
		for _, pod := range k.pods {
			f.keep(&k, pod, 1)
			f.slots[pod.shape] = append(f.slots[pod.shape], i)
		}
		f.kept = append(f.kept, k)
	}
	for _, i := range p.arrivals {
		if !f.takeSlot(i) {
			f.takeRoom(i)
		}
	}
	return f
}

// keep adds the resources of the pod to those that are kept or, with sign -1, removes them.
func (f *follower) keep(k *bin, pod placed, sign int64) {
	s := &f.problem.shapes[pod.shape]
	k.cpu, k.memory = k.cpu+sign*s.cpu, k.memory+share.Bytes(sign)*s.bytes
	for _, g := range pod.devices {
		k.free[g] += sign * s.milli
	}
}

// takeSlot places a pod of shape i where the plan has a place for one, unless other pods have taken that place.
func (f *follower) takeSlot(i int) bool {
	for len(f.slots[i]) > 0 {
		at := f.slots[i][0]
		f.slots[i] = f.slots[i][1:]
		k := &f.kept[at]
		for j, pod := range k.pods {
			if pod.shape != i {
				continue
			}
			k.pods = append(append([]placed{}, k.pods[:j]...), k.pods[j+1:]...)
			f.keep(k, pod, -1)
			if f.hasRoom(&f.bins[at], pod) {
				f.place(&f.bins[at], i, pod.devices)
				return true
			}
			break
		}
	}
	return false
}

func (f *follower) hasRoom(b *bin, pod placed) bool {
	s := &f.problem.shapes[pod.shape]
	for _, g := range pod.devices {
		if b.free[g] < s.milli {
			return false
		}
	}
	return s.cpu <= b.cpu && s.bytes <= b.memory
}

// takeRoom places a pod for which the plan has no place. It chooses the node where the pod takes the least of what is kept for others; ties go to
// the node whose devices then have the least room left or, for a pod without GPUs, to the one with the most CPU. It refuses the pod if no node has
// room.
func (f *follower) takeRoom(i int) {
	s := &f.problem.shapes[i]
	best, least := placed{}, [2]int64{}
	at := -1
	for n := range f.bins {
		b, k := &f.bins[n], &f.kept[n]
		if !s.fits[b.node] || s.cpu > b.cpu || s.bytes > b.memory {
			continue
		}
		beside := bin{free: make([]int64, len(b.free))}
		for g := range b.free {
			beside.free[g] = b.free[g] - max(0, k.free[g])
		}
		devices, ok := beside.tightest(s)
		if !ok {
			if devices, ok = b.tightest(s); !ok {
				continue
			}
		}
		damage := max(0, s.cpu-(b.cpu-k.cpu)) // CPU that is kept for others; 32 cores count as one device
		damage /= 32
		left := int64(0)
		for _, g := range devices {
			damage += max(0, s.milli-beside.free[g])
			left += b.free[g] - s.milli
		}
		if s.gpus == 0 {
			left = k.cpu - b.cpu
		}
		if cost := [2]int64{damage, left}; at < 0 || cost[0] < least[0] || cost[0] == least[0] && cost[1] < least[1] {
			at, least, best = n, cost, placed{i, devices}
		}
	}
	if at >= 0 {
		f.place(&f.bins[at], i, best.devices)
	}
}

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
