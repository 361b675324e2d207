package packing

import (
	"cmp"
	"slices"
)

// column is what the nodes answered for one kind of pod.
type column struct {
	answers  []answer   // by node
	fresh    []answer   // by kind of fresh node, within one call
	withRoom tournament // of the nodes that admit the pod and have the CPU and the memory for it
	seen     int64      // position in the fleet's changes that withRoom has reached
	used     int64
}

// answer is a node's rank, or its refusal, valid for one version of the node.
type answer struct {
	version int64
	rank    Rank
	refusal Refusal
}

// forget drops every answer.
func (c *column) forget() {
	clear(c.answers)
	c.seen = unseenChanges
}

// column finds the ranks of a kind of pod, making room for new ones by forgetting the kind unused for longest.
func (f *Fleet) column(key string) *column {
	f.clock++
	col := f.columns[key]
	if col == nil {
		if len(f.columns) >= maxColumns {
			f.forgetOldest()
		}
		col = &column{answers: make([]answer, len(f.nodes)), seen: unseenChanges}
		f.columns[key] = col
	}
	col.used = f.clock
	return col
}

func (f *Fleet) forgetOldest() {
	var oldest string
	used := f.clock
	for key, col := range f.columns {
		if col.used < used {
			oldest, used = key, col.used
		}
	}
	delete(f.columns, oldest)
}

// update asks node i if it has changed since it last answered.
func (f *Fleet) update(i int, col *column, pod *Pod) bool {
	if col.answers[i].version == f.nodes[i].version {
		return false
	}
	col.answers[i] = f.ask(i, col, pod)
	return true
}

// refresh brings the tournament up to date: it asks the nodes that have changed since, or all.
func (f *Fleet) refresh(col *column, pod *Pod) {
	clear(col.fresh)
	changed, all := f.changes.since(col.seen)
	col.seen = f.changes.position()
	if all {
		f.rebuild(col, pod)
		return
	}
	for _, c := range changed {
		if i := int(c.node); c.version == f.nodes[i].version { // else a later entry is about the node as it is now
			col.withRoom.set(i, f.contender(i, col, pod))
		}
	}
}

// rebuild goes through all nodes.
func (f *Fleet) rebuild(col *column, pod *Pod) {
	col.withRoom.size(len(f.nodes))
	for i := range f.nodes {
		col.withRoom.enter(i, f.contender(i, col, pod))
	}
	col.withRoom.play()
}

// contender is node i if it admits the pod and has the CPU and the memory for it, else nobody. A node that is seen to be too
// small is not asked why it refuses.
func (f *Fleet) contender(i int, col *column, pod *Pod) contender {
	n := &f.nodes[i]
	if n.version == 0 || n.cpu < pod.CPU || n.ram < pod.RAM {
		return nobody
	}
	for c := range pod.Request.Containers {
		if pod.Request.Containers[c].Share.RequestArea() > n.most {
			return nobody
		}
	}
	a := f.answerOf(i, col, pod)
	if a.refusal != Admitted {
		return nobody
	}
	return contender{rank: a.rank, place: f.places[i], node: int32(i)}
}

// answerOf is what node i answers; that of a fresh node is not written down for each of its kind.
func (f *Fleet) answerOf(i int, col *column, pod *Pod) *answer {
	if n := &f.nodes[i]; n.kind != notFresh {
		return f.askFresh(n, col, pod)
	}
	f.update(i, col, pod)
	return &col.answers[i]
}

// sortNames makes out the order of the names, if it is not known.
func (f *Fleet) sortNames() {
	if f.places != nil {
		return
	}
	sorted := make([]int32, len(f.nodes))
	for i := range sorted {
		sorted[i] = int32(i)
	}
	slices.SortFunc(sorted, func(a, b int32) int { return cmp.Compare(f.nodes[a].name(), f.nodes[b].name()) })
	f.places = make([]int32, len(f.nodes))
	for place, i := range sorted {
		f.places[i] = int32(place)
	}
	for _, col := range f.columns {
		col.seen = unseenChanges
	}
}

func (n *fleetNode) name() string {
	if n.version == 0 {
		return ""
	}
	return n.node.Name
}
