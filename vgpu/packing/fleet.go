package packing

// maxColumns bounds the shapes of pod whose ranks a Fleet keeps.
const maxColumns = 256

// Fleet remembers, for each kind of pod, the rank of every node, and asks again only about nodes that changed. It is not
// safe for concurrent use.
type Fleet struct {
	packer  Packer
	nodes   []*fleetNode
	columns map[string]*column
	clock   int64 // counts calls, to forget the columns unused for longest
}

type fleetNode struct {
	node    *Node
	version int64
}

// column is what the nodes answered for one kind of pod, by node.
type column struct {
	answers []answer
	used    int64
}

// answer is a node's rank, or its refusal, valid for one version of the node.
type answer struct {
	version int64
	rank    Rank
	refusal Refusal
}

// NewFleet gives a fleet of size nodes, all unknown.
func NewFleet(p Packer, size int) *Fleet {
	f := &Fleet{packer: p, columns: map[string]*column{}, nodes: make([]*fleetNode, size)}
	for i := range f.nodes {
		f.nodes[i] = &fleetNode{}
	}
	return f
}

// Len is the number of nodes.
func (f *Fleet) Len() int { return len(f.nodes) }

// SetPacker changes rules or preferences; every rank is computed anew.
func (f *Fleet) SetPacker(p Packer) {
	f.packer = p
	f.columns = map[string]*column{}
}

// Set replaces node i. The version must be new and not zero.
func (f *Fleet) Set(i int, n *Node, version int64) {
	*f.nodes[i] = fleetNode{node: n, version: version}
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
// everything about the pod that the packer reads. Where eligible is not nil, nodes for which it is false are left out.
func (f *Fleet) Best(key string, pod *Pod, k int, eligible func(i int) bool) []Candidate {
	if k <= 0 {
		return nil
	}
	col := f.column(key)
	best := make([]Candidate, 0, k+1)
	for i, n := range f.nodes {
		if n.version == 0 {
			continue
		}
		a := &col.answers[i]
		if a.version != n.version {
			*a = f.ask(i, col, pod)
		}
		if c := (Candidate{Node: i, Rank: a.rank}); a.refusal == Admitted && f.enters(best, c, k) && (eligible == nil || eligible(i)) {
			best = f.insert(best, c, k)
		}
	}
	return best
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

// ask asks node i, whose forerunners have answered. A fresh node just like the one before it answers like that one: most of
// a large cluster that fills up is such nodes.
func (f *Fleet) ask(i int, col *column, pod *Pod) answer {
	n := f.nodes[i]
	if i > 0 && f.nodes[i-1].version != 0 && n.node.freshTwinOf(f.nodes[i-1].node) {
		a := col.answers[i-1]
		a.version = n.version
		return a
	}
	_, rank, refusal := f.packer.Place(n.node, pod)
	return answer{version: n.version, rank: rank, refusal: refusal}
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

// column finds the ranks of a kind of pod, making room for new ones by forgetting the kind unused for longest.
func (f *Fleet) column(key string) *column {
	f.clock++
	col := f.columns[key]
	if col == nil {
		if len(f.columns) >= maxColumns {
			f.forgetOldest()
		}
		col = &column{answers: make([]answer, len(f.nodes))}
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
