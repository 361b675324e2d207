package packing

import (
	"cmp"
	"slices"
)

// rankCache holds the evaluations of all nodes for pods of equal requests.
type rankCache struct {
	evaluations []evaluation // by node
	unused      []evaluation // of unused nodes, by hardware; valid within one call
	fitting     tournament   // of the nodes that admit the pod and have enough CPU and memory for it
	seen        int64        // position in the fleet's change log up to which fitting is current
	used        int64
}

// evaluation is the rank of one version of a node for a pod, or the reason why that node cannot take the pod.
type evaluation struct {
	version int64
	rank    Rank
	refusal Refusal
}

func (c *rankCache) invalidate() {
	clear(c.evaluations)
	c.seen = beforeAllChanges
}

// rankCache returns the cache for pods with the given key, creating it if necessary. At maxCaches it evicts the least recently used cache.
func (f *Fleet) rankCache(key string) *rankCache {
	f.clock++
	col := f.caches[key]
	if col == nil {
		if len(f.caches) >= maxCaches {
			f.evictOldest()
		}
		col = &rankCache{evaluations: make([]evaluation, len(f.nodes)), seen: beforeAllChanges}
		f.caches[key] = col
	}
	col.used = f.clock
	return col
}

// evictOldest removes the least recently used cache.
func (f *Fleet) evictOldest() {
	var oldest string
	used := f.clock
	for key, col := range f.caches {
		if col.used < used {
			oldest, used = key, col.used
		}
	}
	delete(f.caches, oldest)
}

// update evaluates node i if it has changed since its last evaluation in the cache, and reports whether it has.
func (f *Fleet) update(i int, col *rankCache, pod *Pod) bool {
	if col.evaluations[i].version == f.nodes[i].version {
		return false
	}
	col.evaluations[i] = f.evaluate(i, col, pod)
	return true
}

// refresh brings the tournament of a cache up to date with the nodes that have changed since its last call.
func (f *Fleet) refresh(col *rankCache, pod *Pod) {
	clear(col.unused)
	changed, all := f.changes.since(col.seen)
	col.seen = f.changes.position()
	if all {
		f.rebuild(col, pod)
		return
	}
	for _, c := range changed {
		if i := int(c.node); c.version == f.nodes[i].version { // otherwise a later entry stands for the present version
			col.fitting.set(i, f.contender(i, col, pod))
		}
	}
}

// rebuild sets up the tournament of a cache from all nodes.
func (f *Fleet) rebuild(col *rankCache, pod *Pod) {
	col.fitting.resize(len(f.nodes))
	for i := range f.nodes {
		col.fitting.enter(i, f.contender(i, col, pod))
	}
	col.fitting.playAll()
}

// contender returns node i as a contender of the tournament, or noContender if the node does not admit the pod or lacks the CPU or memory
// for it. A node without a large enough slice is not evaluated at all.
func (f *Fleet) contender(i int, col *rankCache, pod *Pod) contender {
	n := &f.nodes[i]
	if n.version == 0 || pod.CPU > 0 && n.cpu < pod.CPU || pod.RAM > 0 && n.ram < pod.RAM {
		return noContender
	}
	for c := range pod.Request.Containers {
		if pod.Request.Containers[c].Share.RequestArea() > n.most {
			return noContender
		}
	}
	a := f.evaluationOf(i, col, pod)
	if a.refusal != Admitted {
		return noContender
	}
	return contender{rank: a.rank, place: f.nameOrder[i], node: int32(i)}
}

// evaluationOf returns the evaluation of node i for the pod. Unused nodes of equal hardware share one evaluation.
func (f *Fleet) evaluationOf(i int, col *rankCache, pod *Pod) *evaluation {
	if n := &f.nodes[i]; n.hardware != notUnused {
		return f.evaluateUnused(n, col, pod)
	}
	f.update(i, col, pod)
	return &col.evaluations[i]
}

// orderNames computes the position of each node in the order of names, if a name has changed.
func (f *Fleet) orderNames() {
	if f.nameOrder != nil {
		return
	}
	sorted := make([]int32, len(f.nodes))
	for i := range sorted {
		sorted[i] = int32(i)
	}
	slices.SortFunc(sorted, func(a, b int32) int { return cmp.Compare(f.nodes[a].name(), f.nodes[b].name()) })
	f.nameOrder = make([]int32, len(f.nodes))
	for place, i := range sorted {
		f.nameOrder[i] = int32(place)
	}
	for _, col := range f.caches {
		col.seen = beforeAllChanges
	}
}

// name returns the name of the node, or an empty string if it was never set.
func (n *fleetNode) name() string {
	if n.version == 0 {
		return ""
	}
	return n.node.Name
}

// evaluate returns the rank of node i for the pod, or the refusal.
func (f *Fleet) evaluate(i int, col *rankCache, pod *Pod) evaluation {
	n := &f.nodes[i]
	if n.hardware == notUnused {
		return f.evaluateNode(n, pod)
	}
	a := *f.evaluateUnused(n, col, pod)
	a.version = n.version
	return a
}

// evaluateUnused evaluates a node without shares. In each call it evaluates one node for each kind of hardware, because large parts of a
// cluster are unused nodes of equal hardware.
func (f *Fleet) evaluateUnused(n *fleetNode, col *rankCache, pod *Pod) *evaluation {
	for len(col.unused) <= n.hardware {
		col.unused = append(col.unused, evaluation{})
	}
	a := &col.unused[n.hardware]
	if a.version == 0 {
		*a = f.evaluateNode(n, pod)
	}
	return a
}

// evaluateNode runs the packer on the node and returns the rank of the best placement, or the refusal.
func (f *Fleet) evaluateNode(n *fleetNode, pod *Pod) evaluation {
	choices, rank, refusal := f.packer.place(n.node, pod, f.costsOf(n), f.scratch[:0])
	if choices != nil {
		f.scratch = choices // keep its memory for the next call
	}
	return evaluation{version: n.version, rank: rank, refusal: refusal}
}

const (
	maxHardware = 64 // kinds of hardware that are distinguished; an unused node of a further kind is evaluated like a used one
	notUnused   = -1 // stands for used nodes, and for unused ones of a further kind
)

// hardwareKind returns a number that unused nodes of equal hardware share, or notUnused if the node is in use or has MIG instances.
func (f *Fleet) hardwareKind(n *Node) int {
	if !n.isUnused() {
		return notUnused
	}
	for kind, other := range f.unusedNodes {
		if n.hasHardwareOf(other) {
			return kind
		}
	}
	if len(f.unusedNodes) == maxHardware {
		return notUnused
	}
	f.unusedNodes = append(f.unusedNodes, NewNode("", n.Slices, n.CPU, n.RAM)) // a node of its own, because the caller may go on to use n
	return len(f.unusedNodes) - 1
}

// costsOf returns the costs of policy D for the node, which serve pods of any request, or nil if the ranker is not policy D.
func (f *Fleet) costsOf(n *fleetNode) *nodeCosts {
	b, ok := f.packer.Ranker.(Balance)
	if !ok {
		return nil
	}
	if n.costs == nil {
		n.costs = new(nodeCosts)
	}
	if n.stale {
		n.costs.compute(b, n.node)
		n.stale = false
	}
	return n.costs
}

// changeLog lists which nodes have changed, in order. It keeps entries only as long as reading them costs less than evaluating all nodes
// again.
type changeLog struct {
	log   []nodeChange
	first int64 // position of log[0]
}

// nodeChange records that a node was set with a new version.
type nodeChange struct {
	node    int32
	version int64
}

// beforeAllChanges is a position before the first entry of a changeLog.
const beforeAllChanges = -1

// add appends a change. It drops the oldest changes when the log holds two for each node.
func (c *changeLog) add(i int, version int64, nodes int) {
	if len(c.log) >= 2*nodes {
		kept := copy(c.log, c.log[nodes:])
		c.log = c.log[:kept]
		c.first += int64(nodes)
	}
	c.log = append(c.log, nodeChange{int32(i), version})
}

// position returns the position that the next change will have.
func (c *changeLog) position() int64 { return c.first + int64(len(c.log)) }

// since returns the changes from a position on, or all = true if some of them were dropped, so that the caller has to look at every node. A
// node can occur several times.
func (c *changeLog) since(position int64) (list []nodeChange, all bool) {
	if position < c.first {
		return nil, true
	}
	return c.log[position-c.first:], false
}
