package bound

import (
	"fmt"
	"slices"
	"sort"
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
