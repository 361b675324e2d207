package packing

import (
	"math"
	"slices"
)

// tournament finds the best of the nodes that take part. They meet in heats, and the winners of the heats meet in the final: a
// change costs one heat at most. A tree would compare less, but touch a line of memory on each of its levels.
type tournament struct {
	field []contender // by node
	heats []contender // winner of each heat
}

// heatSize is about the root of the number of nodes of a large cluster.
const heatSize = 64

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

// best is the contender that beats all others of the list.
func best(list []contender) contender {
	first := &nobody
	for i := range list {
		if list[i].beats(first) {
			first = &list[i]
		}
	}
	return *first
}

// size makes room for so many nodes, all of which must then enter.
func (t *tournament) size(nodes int) {
	if len(t.field) != nodes {
		t.field = slices.Repeat([]contender{nobody}, nodes)
		t.heats = slices.Repeat([]contender{nobody}, (nodes+heatSize-1)/heatSize)
	}
}

// enter puts a contender, or nobody, in the place of node i; play must follow.
func (t *tournament) enter(i int, c contender) { t.field[i] = c }

// play finds all winners anew.
func (t *tournament) play() {
	for h := range t.heats {
		t.replay(h)
	}
}

func (t *tournament) replay(h int) {
	t.heats[h] = best(t.field[h*heatSize : min((h+1)*heatSize, len(t.field))])
}

// set puts a contender, or nobody, in the place of node i and plays again what that may change.
func (t *tournament) set(i int, c contender) {
	t.field[i] = c
	switch winner := &t.heats[i/heatSize]; {
	case c.beats(winner):
		*winner = c
	case winner.node == int32(i):
		t.replay(i / heatSize)
	}
}

// winner is the best contender, or nobody.
func (t *tournament) winner() contender { return best(t.heats) }
