package pipeline

import (
	"fmt"
	"math"
	"math/bits"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// nodeSet is a set of graph nodes: bit i stands for the node at position i of the topological order.
type nodeSet uint16

func singleton(i int) nodeSet { return 1 << i }

func (s nodeSet) contains(i int) bool { return s>>i&1 == 1 }

// forEach calls visit for each node of the set, in ascending order.
func (s nodeSet) forEach(visit func(int)) {
	for ; s != 0; s &= s - 1 {
		visit(bits.TrailingZeros16(uint16(s)))
	}
}

// graph is the dependency graph of a function's nodes, in a topological order.
type graph struct {
	order []int     // position in the order -> index in Function.Nodes
	next  []nodeSet // by position: the nodes that read its output
	prev  []nodeSet
}

// graph returns the dependency graph with its nodes in topological order. The order follows each branch to its end before it begins
// the next one, and otherwise keeps that of Function.Nodes. Errors are *share.FieldError.
func (f *Function) graph() (*graph, error) {
	index := map[string]int{}
	for i, n := range f.Nodes {
		if first, twice := index[n.Name]; twice {
			return nil, share.Invalid(fmt.Sprintf("nodes[%d].name", i), "%.64q is also the name of nodes[%d]", n.Name, first)
		}
		index[n.Name] = i
	}
	reads := make([]nodeSet, len(f.Nodes)) // by index
	for i, n := range f.Nodes {
		for _, name := range n.After {
			from, known := index[name]
			if !known {
				return nil, share.Invalid(fmt.Sprintf("nodes[%d].after", i), "no node is named %.64q", name)
			}
			reads[i] |= singleton(from)
		}
	}
	order, err := f.topologicalOrder(reads)
	if err != nil {
		return nil, err
	}
	return newGraph(order, reads), nil
}

// topologicalOrder returns the indexes of the nodes depth first: among the nodes whose inputs are all listed, the next one is that whose
// last input was listed last. reads holds the inputs of each node. A cycle is a *share.FieldError.
func (f *Function) topologicalOrder(reads []nodeSet) ([]int, error) {
	var order []int
	var done nodeSet
	for len(order) < len(reads) {
		best, latest := -1, -2
		for i, r := range reads {
			if done.contains(i) || r&^done != 0 {
				continue
			}
			if at := lastPosition(order, r); at > latest {
				best, latest = i, at
			}
		}
		if best < 0 {
			return nil, share.Invalid("nodes", "%.64q is part of a cycle, or follows one", f.Nodes[firstMissing(done)].Name)
		}
		order, done = append(order, best), done|singleton(best)
	}
	return order, nil
}

// lastPosition returns the highest index at which the order lists a node of the set, or -1.
func lastPosition(order []int, members nodeSet) int {
	for at := len(order) - 1; at >= 0; at-- {
		if members.contains(order[at]) {
			return at
		}
	}
	return -1
}

// firstMissing returns the lowest node that the set does not contain.
func firstMissing(s nodeSet) int { return bits.TrailingZeros16(uint16(^s)) }

// newGraph returns the graph whose nodes are in the given order; reads holds the inputs of each node by its index in Function.Nodes.
func newGraph(order []int, reads []nodeSet) *graph {
	position := make([]int, len(order))
	for at, i := range order {
		position[i] = at
	}
	g := &graph{order: order, next: make([]nodeSet, len(order)), prev: make([]nodeSet, len(order))}
	for at, i := range order {
		reads[i].forEach(func(from int) {
			g.prev[at] |= singleton(position[from])
			g.next[position[from]] |= singleton(at)
		})
	}
	return g
}

// components returns the connected components of the given nodes, ordered by their first node. Nodes in different components do not
// depend on each other, so they can run in parallel.
func (g *graph) components(nodes nodeSet) []nodeSet {
	var found []nodeSet
	for nodes != 0 {
		part, grown := nodeSet(0), nodes&-nodes
		for grown != part {
			part = grown
			part.forEach(func(i int) { grown |= (g.next[i] | g.prev[i]) & nodes })
		}
		found, nodes = append(found, part), nodes&^part
	}
	return found
}

// Segment is a list of nodes that run on one slice, as indexes into Function.Nodes in the order of execution.
type Segment []int

// Stage is a pipeline stage: one or more segments, each on a slice of its own, that run in parallel for one request. Only nodes that do
// not depend on each other can be in different segments.
type Stage []Segment

// Partition is a way to split a function into pipeline stages. A request passes through the stages one after another, while the other
// stages process other requests.
type Partition struct {
	Stages []Stage
	CV     CV // of the stage times with each segment on the smallest kind that runs it (U7)
}

// Slices returns the number of slices that the partition needs.
func (p Partition) Slices() int {
	n := 0
	for _, s := range p.Stages {
		n += len(s)
	}
	return n
}

// Monolithic reports whether the whole function runs on one slice.
func (p Partition) Monolithic() bool { return p.Slices() == 1 }

// CV is the coefficient of variation of stage times: their standard deviation divided by their mean. It is 0 for equal times and for a
// single stage. It is rounded to a millionth, so that it does not depend on the order of summation.
type CV float64

// Variation returns the coefficient of variation of stage times (FluidFaaS, eq. 1); 0 if there are none or all are 0.
func Variation(times []time.Duration) CV {
	sum, squares := 0.0, 0.0
	for _, t := range times {
		sum += t.Seconds()
	}
	mean := sum / float64(len(times))
	for _, t := range times {
		d := t.Seconds() - mean
		squares += float64(d * d)
	}
	cv := math.Sqrt(squares/float64(len(times))) / mean
	if math.IsNaN(cv) {
		return 0
	}
	return CV(math.Round(cv*1e6) / 1e6)
}

// partitions returns every way to split the topological order of the nodes into stages. A stage whose nodes fall into independent
// components is listed twice: on one slice, and with a slice for each component. A chain of n nodes has 2^(n-1) partitions. In a graph
// with branches, the partitions include all splits at the dominators of the exit, since every topological order keeps the nodes between
// two dominators together; splits within a branch are needed where the branch is too large for one slice.
func (g *graph) partitions() [][][]nodeSet {
	n := len(g.order)
	rest := make([][][][]nodeSet, n+1) // by first position: the partitions of all from there
	rest[n] = [][][]nodeSet{nil}
	for from := n - 1; from >= 0; from-- {
		for to := from + 1; to <= n; to++ {
			for _, stage := range g.possibleStages(singleton(to) - singleton(from)) {
				for _, tail := range rest[to] {
					rest[from] = append(rest[from], append([][]nodeSet{stage}, tail...))
				}
			}
		}
	}
	return rest[0]
}

// possibleStages returns the ways in which the given nodes can form one stage: all on one slice, or each independent component on a slice
// of its own.
func (g *graph) possibleStages(nodes nodeSet) [][]nodeSet {
	found := [][]nodeSet{{nodes}}
	if spread := g.components(nodes); len(spread) > 1 {
		found = append(found, spread)
	}
	return found
}
