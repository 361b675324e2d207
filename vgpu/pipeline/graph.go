package pipeline

import (
	"fmt"
	"math/bits"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// set is a set of nodes: bit i stands for the node at position i.
type set uint16

// one returns the set of one node.
func one(i int) set { return 1 << i }

// has reports whether the set contains a node.
func (s set) has(i int) bool { return s>>i&1 == 1 }

// each calls visit for all members, in ascending order.
func (s set) each(visit func(int)) {
	for ; s != 0; s &= s - 1 {
		visit(bits.TrailingZeros16(uint16(s)))
	}
}

// graph is a function's nodes in a topological order.
type graph struct {
	order []int // position in the order -> index in Function.Nodes
	next  []set // by position: the nodes that read its output
	prev  []set
}

// graph returns the nodes in a topological order. A branch is contiguous: it is followed to its end before the next one begins;
// otherwise the order of Function.Nodes decides. Errors are *share.FieldError.
func (f *Function) graph() (*graph, error) {
	index := map[string]int{}
	for i, n := range f.Nodes {
		if first, twice := index[n.Name]; twice {
			return nil, share.Invalid(fmt.Sprintf("nodes[%d].name", i), "%.64q is also the name of nodes[%d]", n.Name, first)
		}
		index[n.Name] = i
	}
	reads := make([]set, len(f.Nodes)) // by index
	for i, n := range f.Nodes {
		for _, name := range n.After {
			from, known := index[name]
			if !known {
				return nil, share.Invalid(fmt.Sprintf("nodes[%d].after", i), "no node is named %.64q", name)
			}
			reads[i] |= one(from)
		}
	}
	order, err := f.sort(reads)
	if err != nil {
		return nil, err
	}
	return numbered(order, reads), nil
}

// sort returns the nodes depth first: of those whose inputs are all listed, the one whose last input was listed last.
func (f *Function) sort(reads []set) ([]int, error) {
	var order []int
	var done set
	for len(order) < len(reads) {
		best, latest := -1, -2
		for i, r := range reads {
			if done.has(i) || r&^done != 0 {
				continue
			}
			if at := lastOf(order, r); at > latest {
				best, latest = i, at
			}
		}
		if best < 0 {
			return nil, share.Invalid("nodes", "%.64q is part of a cycle, or follows one", f.Nodes[firstOutside(done)].Name)
		}
		order, done = append(order, best), done|one(best)
	}
	return order, nil
}

// lastOf returns the last position in the order of a member of the set, or -1.
func lastOf(order []int, members set) int {
	for at := len(order) - 1; at >= 0; at-- {
		if members.has(order[at]) {
			return at
		}
	}
	return -1
}

// firstOutside returns the first node that the set does not contain.
func firstOutside(s set) int { return bits.TrailingZeros16(uint16(^s)) }

// numbered returns the graph of an order; reads holds the inputs of each node by index.
func numbered(order []int, reads []set) *graph {
	position := make([]int, len(order))
	for at, i := range order {
		position[i] = at
	}
	g := &graph{order: order, next: make([]set, len(order)), prev: make([]set, len(order))}
	for at, i := range order {
		reads[i].each(func(from int) {
			g.prev[at] |= one(position[from])
			g.next[position[from]] |= one(at)
		})
	}
	return g
}

// components returns the connected components of the nodes, by first member. Nodes in different components do not depend on
// each other, so they can run in parallel.
func (g *graph) components(nodes set) []set {
	var found []set
	for nodes != 0 {
		part, grown := set(0), nodes&-nodes
		for grown != part {
			part = grown
			part.each(func(i int) { grown |= (g.next[i] | g.prev[i]) & nodes })
		}
		found, nodes = append(found, part), nodes&^part
	}
	return found
}
