package packing

import (
	"math"
	"slices"
)

// tournament finds the best-ranked of many nodes. It is a tree of two levels: nodes compete in heats of 64, and the winners of the heats
// are compared. When a node changes, only its own heat is played again. A deeper tree would compare less, but touch more cache lines.
type tournament struct {
	field []contender // by node
	heats []contender // winner of each heat
}

// heatSize is the number of nodes in a heat, about the square root of the number of nodes in a large cluster.
const heatSize = 64

// contender is a node in a tournament, with the keys by which it is compared: the lower rank wins, then the smaller name.
type contender struct {
	rank  Rank
	place int32 // in the order of names
	node  int32
}

// noContender stands for a node that cannot take the pod. It loses against every other contender.
var noContender = contender{rank: math.MaxInt64, node: -1}

// beats reports whether c is better than o: of lower rank or, at equal rank, of smaller name.
func (c *contender) beats(o *contender) bool {
	return c.rank < o.rank || c.rank == o.rank && c.place < o.place
}

// bestOf returns the best contender of the list, or noContender if there is none.
func bestOf(list []contender) contender {
	first := &noContender
	for i := range list {
		if list[i].beats(first) {
			first = &list[i]
		}
	}
	return *first
}

// resize sets the number of nodes. Each node must then be set by enter.
func (t *tournament) resize(nodes int) {
	if len(t.field) != nodes {
		t.field = slices.Repeat([]contender{noContender}, nodes)
		t.heats = slices.Repeat([]contender{noContender}, (nodes+heatSize-1)/heatSize)
	}
}

// enter sets the contender of node i without updating the winners. The caller must call playAll afterwards.
func (t *tournament) enter(i int, c contender) { t.field[i] = c }

// playAll computes the winners of all heats (groups of 64 nodes).
func (t *tournament) playAll() {
	for h := range t.heats {
		t.playHeat(h)
	}
}

// playHeat computes the winner of one heat (a group of 64 nodes).
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

// winner returns the best contender of all nodes, or noContender if no node can take the pod.
func (t *tournament) winner() contender { return bestOf(t.heats) }
