package packing

import (
	"cmp"
	"slices"
)

// rankCache holds the evaluations of the nodes for one kind of pod.
type rankCache struct {
	evaluations []evaluation // by node
	unused      []evaluation // by kind of unused node, within one call
	fitting     tournament   // among the nodes that admit the pod and have the CPU and the memory for it
	seen        int64        // position in the fleet's changes that fitting has reached
	used        int64
}

// evaluation is the rank of a node, or its refusal, for one version of the node.
type evaluation struct {
	version int64
	rank    Rank
	refusal Refusal
}

// invalidate drops every evaluation.
func (c *rankCache) invalidate() {
	clear(c.evaluations)
	c.seen = beforeAllChanges
}

// rankCache returns the cache of a kind of pod. It evicts the one unused for longest if there are too many.
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

// evictOldest removes the cache that was unused for longest.
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

// update evaluates node i if it has changed since the last evaluation, and reports whether it has.
func (f *Fleet) update(i int, col *rankCache, pod *Pod) bool {
	if col.evaluations[i].version == f.nodes[i].version {
		return false
	}
	col.evaluations[i] = f.evaluate(i, col, pod)
	return true
}

// refresh updates the tournament from the nodes that have changed since the last call, or from all.
func (f *Fleet) refresh(col *rankCache, pod *Pod) {
	clear(col.unused)
	changed, all := f.changes.since(col.seen)
	col.seen = f.changes.position()
	if all {
		f.rebuild(col, pod)
		return
	}
	for _, c := range changed {
		if i := int(c.node); c.version == f.nodes[i].version { // else a later entry is about the node as it is now
			col.fitting.set(i, f.contender(i, col, pod))
		}
	}
}

// rebuild sets up the tournament from all nodes.
func (f *Fleet) rebuild(col *rankCache, pod *Pod) {
	col.fitting.resize(len(f.nodes))
	for i := range f.nodes {
		col.fitting.enter(i, f.contender(i, col, pod))
	}
	col.fitting.playAll()
}

// contender returns node i if it admits the pod and has the CPU and the memory for it, else noContender. A node that is obviously
// too small is not evaluated.
func (f *Fleet) contender(i int, col *rankCache, pod *Pod) contender {
	n := &f.nodes[i]
	if n.version == 0 || n.cpu < pod.CPU || n.ram < pod.RAM {
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

// evaluationOf returns the evaluation of node i, which unused nodes of one kind share.
func (f *Fleet) evaluationOf(i int, col *rankCache, pod *Pod) *evaluation {
	if n := &f.nodes[i]; n.kind != notUnused {
		return f.evaluateUnused(n, col, pod)
	}
	f.update(i, col, pod)
	return &col.evaluations[i]
}

// orderNames computes the order of the names if it is unknown.
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

// name returns the name of the node, empty before it is set.
func (n *fleetNode) name() string {
	if n.version == 0 {
		return ""
	}
	return n.node.Name
}

// evaluate returns the rank or the refusal of node i.
func (f *Fleet) evaluate(i int, col *rankCache, pod *Pod) evaluation {
	n := &f.nodes[i]
	if n.kind == notUnused {
		return f.evaluateNode(n, pod)
	}
	a := *f.evaluateUnused(n, col, pod)
	a.version = n.version
	return a
}

// evaluateFresh evaluates one unused node of each kind in each call, because large parts of a cluster are such nodes.
func (f *Fleet) evaluateUnused(n *fleetNode, col *rankCache, pod *Pod) *evaluation {
	for len(col.unused) <= n.kind {
		col.unused = append(col.unused, evaluation{})
	}
	a := &col.unused[n.kind]
	if a.version == 0 {
		*a = f.evaluateNode(n, pod)
	}
	return a
}

// evaluateNode runs the packer on a node.
func (f *Fleet) evaluateNode(n *fleetNode, pod *Pod) evaluation {
	choices, rank, refusal := f.packer.place(n.node, pod, f.costsOf(n), f.scratch[:0])
	if choices != nil {
		f.scratch = choices // to be used again
	}
	return evaluation{version: n.version, rank: rank, refusal: refusal}
}

const (
	maxKinds  = 64 // of unused node that are told apart; one of a further kind is evaluated like a used node
	notUnused = -1 // the kind of such a node, and of every used one
)

// kindOf returns the kind of an unused node, and notUnused for any other.
func (f *Fleet) hardwareKind(n *Node) int {
	if !n.isUnused() {
		return notUnused
	}
	for kind, other := range f.kinds {
		if n.hasHardwareOf(other) {
			return kind
		}
	}
	if len(f.kinds) == maxKinds {
		return notUnused
	}
	f.kinds = append(f.kinds, NewNode("", n.Slices, n.CPU, n.RAM)) // the caller may go on to use n
	return len(f.kinds) - 1
}

// surveyOf returns the survey of the node, which all kinds of pod share, or nil if the ranker makes none.
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

// changeLog is a log of the nodes that have changed. It reaches back as long as reading it costs less than evaluating all nodes.
type changeLog struct {
	log   []nodeChange
	first int64 // position of log[0]
}

// nodeChange is a new version of a node.
type nodeChange struct {
	node    int32
	version int64
}

// beforeAllChanges is a position before the first.
const beforeAllChanges = -1

// add appends a change, and drops old ones once there are two for each node.
func (c *changeLog) add(i int, version int64, nodes int) {
	if len(c.log) >= 2*nodes {
		kept := copy(c.log, c.log[nodes:])
		c.log = c.log[:kept]
		c.first += int64(nodes)
	}
	c.log = append(c.log, nodeChange{int32(i), version})
}

// position returns the position of the next change.
func (c *changeLog) position() int64 { return c.first + int64(len(c.log)) }

// since returns the changes from the position on, perhaps several of one node, or all = true if they have been dropped.
func (c *changeLog) since(position int64) (list []nodeChange, all bool) {
	if position < c.first {
		return nil, true
	}
	return c.log[position-c.first:], false
}
