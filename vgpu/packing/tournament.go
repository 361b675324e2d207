package packing

import (
	"math"
	"slices"
)

// tournament is a complete binary tree over the nodes whose root is the best of those that take part: a change costs the way
// from one leaf to the root.
type tournament struct {
	winners []contender // the root is 1, the children of p are 2p and 2p+1, the leaves come last
}

// contender is a node with what decides between it and another: the better rank, then the smaller name.
type contender struct {
	rank  Rank
	place int32 // in the order of names
	node  int32
}

// nobody loses against everybody: no node ranks as low.
var nobody = contender{rank: math.MaxInt64, node: -1}

func (c *contender) beats(o *contender) bool {
	return c.rank < o.rank || c.rank == o.rank && c.place < o.place
}

func (t *tournament) leaves() int { return len(t.winners) / 2 }

// size makes room for so many nodes, all of which must then enter.
func (t *tournament) size(nodes int) {
	leaves := 1
	for leaves < nodes {
		leaves *= 2
	}
	if len(t.winners) != 2*leaves {
		t.winners = slices.Repeat([]contender{nobody}, 2*leaves)
	}
}

// enter puts a contender, or nobody, in the place of node i; play must follow.
func (t *tournament) enter(i int, c contender) { t.winners[t.leaves()+i] = c }

// play finds all winners anew.
func (t *tournament) play() {
	for p := t.leaves() - 1; p > 0; p-- {
		t.winners[p] = t.match(p)
	}
}

// set puts a contender, or nobody, in the place of node i and plays again what that may change.
func (t *tournament) set(i int, c contender) {
	p, node := t.leaves()+i, int32(i)
	if c == t.winners[p] {
		return
	}
	t.winners[p] = c
	for p /= 2; p > 0; p /= 2 {
		before := t.winners[p].node
		t.winners[p] = t.match(p)
		if before != node && t.winners[p].node == before {
			return // lost here before and now: further up it was not known
		}
	}
}

func (t *tournament) match(p int) contender {
	if a, b := &t.winners[2*p], &t.winners[2*p+1]; !b.beats(a) {
		return *a
	}
	return t.winners[2*p+1]
}

// winner is the best contender, or nobody.
func (t *tournament) winner() contender { return t.winners[1] }
