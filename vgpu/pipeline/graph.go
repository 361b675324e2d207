package pipeline

import (
	"fmt"
	"math/bits"

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

// graph returns the dependency graph with its nodes in topological order. A branch is followed to its end before the next one begins;
// otherwise the order of Function.Nodes decides. Errors are *share.FieldError.
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

// topologicalOrder returns the indexes of the nodes depth first: of the nodes whose inputs are all listed, the next is the one whose last
// input was listed last. The argument holds the inputs of each node. A cycle is a *share.FieldError.
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
