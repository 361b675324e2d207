package pipeline

import (
	"fmt"
	"math/bits"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// set is a set of nodes: bit i is the node at position i.
type set uint16

func one(i int) set { return 1 << i }

func (s set) has(i int) bool { return s>>i&1 == 1 }

// each calls visit for the members, ascending.
func (s set) each(visit func(int)) {
	for ; s != 0; s &= s - 1 {
		visit(bits.TrailingZeros16(uint16(s)))
	}
}

// graph is a function's nodes by their position in a topological order.
type graph struct {
	order []int // position in the order -> index in Function.Nodes
	next  []set // by position: the nodes that read its output
	prev  []set
}

// graph sorts the nodes so that each follows those it reads from. Among the possible orders it follows one branch to its
// end before it begins the next, so that a branch is contiguous; otherwise the order of the list decides.
func (f *Function) graph() (*graph, error) {
	index := map[string]int{}
	for i, n := range f.Nodes {
		if first, twice := index[n.Name]; twice {
			return nil, share.Invalid(fmt.Sprintf("nodes[%d].name", i), "%.64q is the name of nodes[%d] too", n.Name, first)
		}
		index[n.Name] = i
	}
	reads := make([]set, len(f.Nodes)) // by index
	for i, n := range f.Nodes {
		for _, name := range n.After {
			from, known := index[name]
			if !known {
				return nil, share.Invalid(fmt.Sprintf("nodes[%d].after", i), "there is no node %.64q", name)
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

// sort lists the nodes, depth first: of those that are ready the one whose input came last.
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
			return nil, share.Invalid("nodes", "%.64q is part of a cycle, or behind one", f.Nodes[firstOutside(done)].Name)
		}
		order, done = append(order, best), done|one(best)
	}
	return order, nil
}

func lastOf(order []int, members set) int {
	for at := len(order) - 1; at >= 0; at-- {
		if members.has(order[at]) {
			return at
		}
	}
	return -1
}

func firstOutside(s set) int { return bits.TrailingZeros16(uint16(^s)) }

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

// components splits nodes into those that are connected among themselves, by first member ascending. What lies in
// different components does not depend on each other, so it can run at the same time.
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
