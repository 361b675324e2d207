package packing

import "github.com/gshare-dev/gshare/vgpu/share"

// maxColumns bounds the kinds of pod whose ranks a Fleet keeps.
const maxColumns = 512

// Fleet remembers, for each kind of pod, the rank of every node, and asks again only about nodes that changed. It is not safe
// for concurrent use.
type Fleet struct {
	packer  Packer
	nodes   []fleetNode
	columns map[string]*column
	clock   int64 // counts calls, to forget the columns unused for longest
	changes changes
	kinds   []*Node // one for each kind of fresh node
	places  []int32 // of the nodes in the order of their names; nil when a name has changed
	scratch []Choice
}

type fleetNode struct {
	node    *Node
	version int64
	cpu     MilliCPU // of node, as it was set
	ram     share.Bytes
	most    share.Area // SM-time of the slice with the most left
	kind    int        // of a fresh node, by its place in kinds; notFresh for any other
	look    *survey    // of the node
	blind   bool       // look is not of the node as it is now, or of another demand
}

// NewFleet gives a fleet of size nodes, all unknown.
func NewFleet(p Packer, size int) *Fleet {
	return &Fleet{packer: p, columns: map[string]*column{}, nodes: make([]fleetNode, size)}
}

// Len is the number of nodes.
func (f *Fleet) Len() int { return len(f.nodes) }

// SetPacker changes rules or preferences; every rank is computed anew.
func (f *Fleet) SetPacker(p Packer) {
	f.packer = p
	for _, col := range f.columns {
		col.forget()
	}
	for i := range f.nodes {
		f.nodes[i].blind = true
	}
}

// Set replaces node i. The version must be new and not zero.
func (f *Fleet) Set(i int, n *Node, version int64) {
	if old := f.nodes[i].node; old == nil || old.Name != n.Name {
		f.places = nil
	}
	f.nodes[i] = fleetNode{
		node: n, version: version, cpu: n.CPU, ram: n.RAM, most: n.mostLeft(), kind: f.kindOf(n), look: f.nodes[i].look, blind: true,
	}
	f.changes.add(i, version, len(f.nodes))
}

// Version is the version of node i; zero before it is first set.
func (f *Fleet) Version(i int) int64 { return f.nodes[i].version }

// Node is node i as it was last set.
func (f *Fleet) Node(i int) *Node { return f.nodes[i].node }

// Candidate is a node by its index, and how it ranks for a pod.
type Candidate struct {
	Node int
	Rank Rank
}

// Best lists the k best nodes for the pod, the best first; equal ranks stand in the order of the nodes' names. The key names
// everything about the pod that the packer reads, and its CPU and memory. Where eligible is not nil, nodes for which it is
// false are left out.
func (f *Fleet) Best(key string, pod *Pod, k int, eligible func(i int) bool) []Candidate {
	if k <= 0 {
		return nil
	}
	col := f.column(key)
	clear(col.fresh)
	best := make([]Candidate, 0, k+1)
	for i := range f.nodes {
		if f.nodes[i].version == 0 {
			continue
		}
		if f.update(i, col, pod) {
			col.seen = unseenChanges // the tournament knows nothing of the answer
		}
		a := &col.answers[i]
		if c := (Candidate{Node: i, Rank: a.rank}); a.refusal == Admitted && f.enters(best, c, k) && (eligible == nil || eligible(i)) {
			best = f.insert(best, c, k)
		}
	}
	return best
}

// BestWithRoom is the best node for the pod among those that also have the CPU and the memory for it; false where there is
// none. It takes as long as there were changes since it was last asked for this key, however many nodes there are.
func (f *Fleet) BestWithRoom(key string, pod *Pod) (Candidate, bool) {
	f.sortNames()
	col := f.column(key)
	f.refresh(col, pod)
	best := col.withRoom.winner()
	return Candidate{Node: int(best.node), Rank: best.rank}, best != nobody
}

// Known tells how node i ranks for a kind of pod, or why it refuses it, if Best has asked about the node as it is now. It
// changes nothing, so callers may be parallel as long as nobody calls anything else.
func (f *Fleet) Known(key string, i int) (rank Rank, refusal Refusal, known bool) {
	col, version := f.columns[key], f.nodes[i].version
	if col == nil || version == 0 || col.answers[i].version != version {
		return 0, Admitted, false
	}
	return col.answers[i].rank, col.answers[i].refusal, true
}

func (f *Fleet) less(a, b Candidate) bool {
	if a.Rank != b.Rank {
		return a.Rank < b.Rank
	}
	return f.nodes[a.Node].node.Name < f.nodes[b.Node].node.Name
}

func (f *Fleet) enters(best []Candidate, c Candidate, k int) bool {
	return len(best) < k || f.less(c, best[len(best)-1])
}

func (f *Fleet) insert(best []Candidate, c Candidate, k int) []Candidate {
	best = append(best, c)
	for i := len(best) - 1; i > 0 && f.less(best[i], best[i-1]); i-- {
		best[i], best[i-1] = best[i-1], best[i]
	}
	return best[:min(len(best), k)]
}
