package packing

import (
	"math"
	"slices"
)

// tournament finds the best of the nodes. It is a tree of two levels: each heat of 64 nodes has a winner, and the winners are
// compared. A change costs one heat at most. A deeper tree would compare less, but touch more cache lines.
type tournament struct {
	field []contender // by node
	heats []contender // winner of each heat
}

// heatSize is about the square root of the number of nodes of a large cluster.
const heatSize = 64

// contender is a node with what it is compared by: the better rank, then the smaller name.
type contender struct {
	rank  Rank
	place int32 // in the order of names
	node  int32
}

// noContender loses against every node.
var noContender = contender{rank: math.MaxInt64, node: -1}

// beats reports whether c is better than o.
func (c *contender) beats(o *contender) bool {
	return c.rank < o.rank || c.rank == o.rank && c.place < o.place
}

// best returns the best contender of the list, or noContender.
func bestOf(list []contender) contender {
	first := &noContender
	for i := range list {
		if list[i].beats(first) {
			first = &list[i]
		}
	}
	return *first
}

// size sets the number of nodes, all of which must then enter.
func (t *tournament) resize(nodes int) {
	if len(t.field) != nodes {
		t.field = slices.Repeat([]contender{noContender}, nodes)
		t.heats = slices.Repeat([]contender{noContender}, (nodes+heatSize-1)/heatSize)
	}
}

// enter sets the contender of node i. The caller must call play afterwards.
func (t *tournament) enter(i int, c contender) { t.field[i] = c }

// play computes all winners.
func (t *tournament) playAll() {
	for h := range t.heats {
		t.playHeat(h)
	}
}

// replay computes the winner of one heat.
func (t *tournament) playHeat(h int) {
	t.heats[h] = bestOf(t.field[h*heatSize : min((h+1)*heatSize, len(t.field))])
}

// set replaces the contender of node i and updates the winner of its heat.
func (t *tournament) set(i int, c contender) {
	t.field[i] = c
	switch winner := &t.heats[i/heatSize]; {
	case c.beats(winner):
		*winner = c
	case winner.node == int32(i):
		t.playHeat(i / heatSize)
	}
}

// winner returns the best contender, or noContender.
func (t *tournament) winner() contender { return bestOf(t.heats) }
