package explain

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Edit is one field that a user would write otherwise.
type Edit struct {
	Container string `json:"container,omitempty"` // empty for an annotation of the pod
	Field     string `json:"field"`               // resource or annotation
	From      string `json:"from"`
	To        string `json:"to"` // empty: leave it out
}

// Change is edits that let the pod in if all of them are made.
type Change struct {
	Edits []Edit `json:"edits"`
	Node  string `json:"node"` // where there would be room
	loss  int64  // per mille of what was asked, summed over the edits
}

// Changes returns what would let the pod in, each change as small as can be, the smallest first: less of one quantity, else of
// two together, or other terms. None if the pod fits as it is, or no such change helps.
func (q *Question) Changes() []Change {
	if q.fits(q.Pod.Request) != nowhere {
		return nil
	}
	found := q.quantities()
	if len(found) == 0 {
		found = q.pairs()
	}
	slices.SortStableFunc(found, func(a, b Change) int { return cmp.Compare(a.loss, b.loss) })
	return append(found, q.terms()...)
}

// quantities changes one quantity of one container.
func (q *Question) quantities() (found []Change) {
	for c := range q.Pod.Request.Containers {
		for _, a := range q.axes(q.Pod.Request, c) {
			if step, node := q.gentlest(a); node != nowhere {
				found = append(found, Change{Edits: step.edits, Node: q.Nodes[node].Name, loss: step.loss})
			}
		}
	}
	return found
}

// maxPairNodes bounds the nodes that pairs are tried on.
const maxPairNodes = 32

// pairs changes two quantities of one container: for each value of the first the gentlest of the second, and of all of these
// the one that loses least.
func (q *Question) pairs() (found []Change) {
	q = &Question{q.Packer, q.Nodes[:min(len(q.Nodes), maxPairNodes)], q.Pod}
	for c := range q.Pod.Request.Containers {
		first := q.axes(q.Pod.Request, c)
		for i := range first {
			if best, ok := q.bestPair(c, i, first[i]); ok {
				found = append(found, best)
			}
		}
	}
	return found
}

// maxFirst bounds the values tried of the first quantity of a pair.
const maxFirst = 12

func (q *Question) bestPair(c, i int, first axis) (best Change, ok bool) {
	for _, s := range sampled(first, maxFirst) {
		for _, second := range q.axes(s.request, c)[i+1:] {
			step, node := q.gentlest(second)
			if loss := s.loss + step.loss; node != nowhere && (!ok || loss < best.loss) {
				best, ok = Change{Edits: slices.Concat(s.edits, step.edits), Node: q.Nodes[node].Name, loss: loss}, true
			}
		}
	}
	return best, ok
}

// sampled returns the whole of a short axis, and evenly spread steps of a long one, its end among them.
func sampled(a axis, n int) axis {
	if len(a) <= n {
		return a
	}
	out := make(axis, n)
	for i := range out {
		out[i] = a[(i+1)*len(a)/n-1]
	}
	return out
}

// gentlest finds the first step that fits by bisection: a smaller share fits wherever a larger one does.
func (q *Question) gentlest(a axis) (step, int) {
	i, _ := slices.BinarySearchFunc(a, true, func(s step, _ bool) int {
		if q.fits(s.request) == nowhere {
			return -1
		}
		return 0
	})
	if i == len(a) {
		return step{}, nowhere
	}
	return a[i], q.fits(a[i].request)
}

// step is a request with one quantity changed.
type step struct {
	request share.Request
	edits   []Edit
	loss    int64
}

// axis is the values of one quantity below what is asked, the gentlest change first.
type axis []step
