package packing

import (
	"github.com/gshare-dev/gshare/vgpu/share"
)

// maxCaches is the number of distinct pod requests for which a Fleet caches the ranks of all nodes.
const maxCaches = 512

// Fleet finds the best of many nodes for a pod. For each distinct pod request it caches the rank of every node, and evaluates only nodes
// that have changed since. It is not safe for concurrent use.
type Fleet struct {
	packer      Packer
	nodes       []fleetNode
	caches      map[string]*rankCache
	clock       int64 // counts calls, to evict the cache that was unused for longest
	changes     changeLog
	unusedNodes []*Node // for each kind of hardware, one example of its unused nodes
	nameOrder   []int32 // position of each node in the order of names; nil after a name has changed
	scratch     []Choice
}

// fleetNode is a node of a Fleet, with values derived from it to make ranking fast.
type fleetNode struct {
	node     *Node
	version  int64
	cpu      MilliCPU // of node when it was set
	ram      share.Bytes
	most     share.Area // free SM-time of the slice that has the most
	hardware int        // index in unusedNodes if the node is unused; notUnused otherwise
	costs    *nodeCosts // of the node
	stale    bool       // costs describes an earlier state of the node, or another demand
}

// NewFleet returns a fleet of size nodes that are unknown at first: a node is considered once Set has been called for it.
func NewFleet(p Packer, size int) *Fleet {
	return &Fleet{packer: p, caches: map[string]*rankCache{}, nodes: make([]fleetNode, size)}
}

// Len returns the number of nodes in the fleet, including those that were never set.
func (f *Fleet) Len() int { return len(f.nodes) }

// SetPacker replaces the rules and the ranker, and invalidates every cached rank.
func (f *Fleet) SetPacker(p Packer) {
	f.packer = p
	for _, col := range f.caches {
		col.invalidate()
	}
	for i := range f.nodes {
		f.nodes[i].stale = true
	}
}

// Set replaces node i. The version must not be zero, nor one that the node had before.
func (f *Fleet) Set(i int, n *Node, version int64) {
	if old := f.nodes[i].node; old == nil || old.Name != n.Name {
		f.nameOrder = nil
	}
	f.nodes[i] = fleetNode{
		node: n, version: version, cpu: n.CPU, ram: n.RAM, most: n.mostFree(), hardware: f.hardwareKind(n), costs: f.nodes[i].costs, stale: true,
	}
	f.changes.add(i, version, len(f.nodes))
}

// Version returns the version that node i was last set with, or zero if it was never set.
func (f *Fleet) Version(i int) int64 { return f.nodes[i].version }

// Node returns node i as last given to Set.
func (f *Fleet) Node(i int) *Node { return f.nodes[i].node }

// Candidate is a node, by its index in the fleet, and its rank for a pod.
type Candidate struct {
	Node int
	Rank Rank
}

// Best returns the k best nodes for the pod, best first; equal ranks are ordered by the names of the nodes. The key must identify every
// property of the pod that the packer reads, and the pod's CPU and memory. Only nodes for which eligible returns true are considered; if
// eligible is nil, all are.
func (f *Fleet) Best(key string, pod *Pod, k int, eligible func(i int) bool) []Candidate {
	if k <= 0 {
		return nil
	}
	col := f.rankCache(key)
	clear(col.unused)
	best := make([]Candidate, 0, k+1)
	for i := range f.nodes {
		if f.nodes[i].version == 0 {
			continue
		}
		if f.update(i, col, pod) {
			col.seen = beforeAllChanges // the tournament lacks the evaluation
		}
		a := &col.evaluations[i]
		if c := (Candidate{Node: i, Rank: a.rank}); a.refusal == Admitted && f.belongs(best, c, k) && (eligible == nil || eligible(i)) {
			best = f.insert(best, c, k)
		}
	}
	return best
}

// BestWithCapacity returns the best node for the pod among those that also have enough free CPU and memory, or false if there is none. A
// pod that requests no CPU (or no memory) has enough of it even on an overcommitted node. The key is that of Best, and equal ranks are
// ordered as there. Its time depends on the number of changes since the last call with the same key, not on the number of nodes.
func (f *Fleet) BestWithCapacity(key string, pod *Pod) (Candidate, bool) {
	f.orderNames()
	col := f.rankCache(key)
	f.refresh(col, pod)
	best := col.fitting.winner()
	return Candidate{Node: int(best.node), Rank: best.rank}, best != noContender
}

// CachedRank returns the cached rank of node i for pods with the key, or the refusal; known is false unless Best has evaluated the present
// version of the node. Concurrent calls are safe while no other method runs.
func (f *Fleet) CachedRank(key string, i int) (rank Rank, refusal Refusal, known bool) {
	col, version := f.caches[key], f.nodes[i].version
	if col == nil || version == 0 || col.evaluations[i].version != version {
		return 0, Admitted, false
	}
	return col.evaluations[i].rank, col.evaluations[i].refusal, true
}

// less compares nodes by rank, then by name.
func (f *Fleet) less(a, b Candidate) bool {
	if a.Rank != b.Rank {
		return a.Rank < b.Rank
	}
	return f.nodes[a.Node].node.Name < f.nodes[b.Node].node.Name
}

// belongs reports whether a node is one of the k best, given the best ones so far.
func (f *Fleet) belongs(best []Candidate, c Candidate, k int) bool {
	return len(best) < k || f.less(c, best[len(best)-1])
}

// insert adds a node to the sorted list of the k best.
func (f *Fleet) insert(best []Candidate, c Candidate, k int) []Candidate {
	best = append(best, c)
	for i := len(best) - 1; i > 0 && f.less(best[i], best[i-1]); i-- {
		best[i], best[i-1] = best[i-1], best[i]
	}
	return best[:min(len(best), k)]
}
