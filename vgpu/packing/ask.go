package packing

// ask asks node i.
func (f *Fleet) ask(i int, col *column, pod *Pod) answer {
	n := &f.nodes[i]
	if n.kind == notFresh {
		return f.askNode(n, pod)
	}
	a := *f.askFresh(n, col, pod)
	a.version = n.version
	return a
}

// askFresh asks one fresh node of each kind: most of a large cluster that fills up is such nodes.
func (f *Fleet) askFresh(n *fleetNode, col *column, pod *Pod) *answer {
	for len(col.fresh) <= n.kind {
		col.fresh = append(col.fresh, answer{})
	}
	a := &col.fresh[n.kind]
	if a.version == 0 {
		*a = f.askNode(n, pod)
	}
	return a
}

func (f *Fleet) askNode(n *fleetNode, pod *Pod) answer {
	choices, rank, refusal := f.packer.place(n.node, pod, f.look(n), f.scratch[:0])
	if choices != nil {
		f.scratch = choices // to be used again
	}
	return answer{version: n.version, rank: rank, refusal: refusal}
}

// maxKinds bounds the kinds of fresh node that are told apart; a fresh node of one more kind is asked like a used one.
const (
	maxKinds = 64
	notFresh = -1
)

func (f *Fleet) kindOf(n *Node) int {
	if !n.fresh() {
		return notFresh
	}
	for kind, other := range f.kinds {
		if n.twinOf(other) {
			return kind
		}
	}
	if len(f.kinds) == maxKinds {
		return notFresh
	}
	f.kinds = append(f.kinds, NewNode("", n.Slices, n.CPU, n.RAM)) // the caller may go on to use n
	return len(f.kinds) - 1
}

// look surveys the node, once for all kinds of pod; nil where the packer's ranker surveys nothing.
func (f *Fleet) look(n *fleetNode) *survey {
	b, ok := f.packer.Ranker.(Balance)
	if !ok {
		return nil
	}
	if n.look == nil {
		n.look = new(survey)
	}
	if n.blind {
		n.look.look(b, n.node)
		n.blind = false
	}
	return n.look
}
