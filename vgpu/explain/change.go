package explain

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Edit is a change that a user would make to one field of a pod: a resource of a container, or an annotation.
type Edit struct {
	Container string `json:"container,omitempty"` // empty for an annotation of the pod
	Field     string `json:"field"`               // resource or annotation
	From      string `json:"from"`
	To        string `json:"to"` // empty: remove the field
}

// Change is a set of edits that together let a pod fit a node.
type Change struct {
	Edits []Edit `json:"edits"`
	Node  string `json:"node"` // where the pod would then fit
	loss  int64  // reductions in per-mille of what was requested, summed over the edits
}

// Changes returns the smallest changes to the request that would let the pod fit a node, in this order: reductions of one quantity or, if
// none suffices, of two quantities of one container, smallest first; changes of other conditions, such as the GPU model; and, for a
// container that asks for more memory than any GPU has, the fewest whole GPUs that have it together. It returns none if the pod fits as it
// is, or if no such change helps.
func (q *Search) Changes() []Change {
	if q.findNode(q.Pod.Request) != nowhere {
		return nil
	}
	found := q.singleReductions()
	if len(found) == 0 {
		found = q.pairReductions()
	}
	slices.SortStableFunc(found, func(a, b Change) int { return cmp.Compare(a.loss, b.loss) })
	found = slices.Concat(found, q.termChanges(), q.moreGPUs())
	for i := range found {
		found[i].Edits = q.withAnnotations(found[i].Edits)
	}
	return found
}

// withAnnotations returns the edits together with those of annotations that would contradict them.
func (q *Search) withAnnotations(edits []Edit) (all []Edit) {
	for _, e := range edits {
		all = append(append(all, e), q.memoryAnnotation(e)...)
	}
	for i, c := range q.Pod.Request.Containers {
		s := c.Share
		sm, quota := edited(edits, c.Name, share.FieldSM, int64(s.SMRequest/percent)*int64(c.VGPUs)), edited(edits, c.Name, share.FieldQuota, int64(s.QuotaRequest/percent))
		vgpus := edited(edits, c.Name, share.FieldVGPU, int64(c.VGPUs))
		if more := sm - vgpus*int64(s.SMRequest/percent); s.SMLimit == s.SMRequest && (more > 0 || more < 0 && limitFollows(q.Pod.Request, i, smLimit)) {
			all = q.withoutLimit(all, share.FieldSMLimit)
		}
		if more := quota - int64(s.QuotaRequest/percent); s.QuotaLimit == s.QuotaRequest && (more > 0 || more < 0 && limitFollows(q.Pod.Request, i, quotaLimit)) {
			all = q.withoutLimit(all, share.FieldQuotaLimit)
		}
	}
	return all
}

// memoryAnnotation returns the edit of the annotation that says how much memory a container has, if the container's memory is edited and no other
// container has as much. The memory itself is edited, too: where a pod says both, the annotation sets nothing.
func (q *Search) memoryAnnotation(e Edit) []Edit {
	text := q.Annotations[share.FieldMemorySize]
	if mib, err := share.ParseMemorySize(text); e.Field != share.FieldMemory || err != nil || mib == nil || strconv.FormatInt(*mib, 10) != e.From {
		return nil
	}
	others := slices.ContainsFunc(q.Pod.Request.Containers, func(c share.Container) bool {
		return c.Name != e.Container && strconv.FormatInt(int64(c.Share.Memory/share.MiB)*int64(c.VGPUs), 10) == e.From
	})
	if others {
		return nil
	}
	return []Edit{{Field: share.FieldMemorySize, From: text, To: e.To + "Mi"}}
}

// withoutLimit adds the removal of an annotation that sets a limit equal to what was requested: a limit that is left out equals the request.
func (q *Search) withoutLimit(edits []Edit, field string) []Edit {
	text := q.Annotations[field]
	if text == "" || slices.ContainsFunc(edits, func(e Edit) bool { return e.Field == field }) {
		return edits
	}
	return append(edits, Edit{Field: field, From: text})
}

// edited returns the value of a container's resource after the edits, given the present one.
func edited(edits []Edit, container, field string, now int64) int64 {
	for _, e := range edits {
		if e.Container == container && e.Field == field {
			now, _ = strconv.ParseInt(e.To, 10, 64) // by newEdit
		}
	}
	return now
}

// singleReductions returns the changes that lower one quantity of one container.
func (q *Search) singleReductions() (found []Change) {
	for c := range q.Pod.Request.Containers {
		for _, a := range q.reductions(q.Pod.Request, c) {
			if step, node := q.smallestFitting(a); node != nowhere {
				found = append(found, Change{Edits: step.edits, Node: q.Nodes[node].Name, loss: step.loss})
			}
		}
	}
	return found
}

// maxPairNodes is the maximum number of nodes on which changes of two quantities are tried.
const maxPairNodes = 32

// pairReductions returns the changes that lower two quantities of one container. For each value of the first quantity it finds the smallest
// sufficient reduction of the second, and it keeps the pair with the least loss. It searches the first maxPairNodes nodes only.
func (q *Search) pairReductions() (found []Change) {
	q = &Search{Packer: q.Packer, Nodes: q.Nodes[:min(len(q.Nodes), maxPairNodes)], Pod: q.Pod}
	for c := range q.Pod.Request.Containers {
		first := q.reductions(q.Pod.Request, c)
		for i := range first {
			if best, ok := q.bestPair(c, i, first[i]); ok {
				found = append(found, best)
			}
		}
	}
	return found
}

// maxFirstValues is the maximum number of values that are tried for the first of two quantities.
const maxFirstValues = 12

func (q *Search) bestPair(c, i int, first variants) (best Change, ok bool) {
	for _, s := range sample(first, maxFirstValues) {
		for _, second := range q.reductions(s.request, c)[i+1:] {
			step, node := q.smallestFitting(second)
			if loss := s.loss + step.loss; node != nowhere && (!ok || loss < best.loss) {
				best, ok = Change{Edits: slices.Concat(s.edits, step.edits), Node: q.Nodes[node].Name, loss: loss}, true
			}
		}
	}
	return best, ok
}

// sample returns the whole list if it is short, and otherwise n evenly spread elements including the last.
func sample(a variants, n int) variants {
	if len(a) <= n {
		return a
	}
	out := make(variants, n)
	for i := range out {
		out[i] = a[(i+1)*len(a)/n-1]
	}
	return out
}

// smallestFitting returns the first request in the list that fits a node, and the node's index, or nowhere if none fits. It can search by
// bisection because a smaller share fits wherever a larger one does.
func (q *Search) smallestFitting(a variants) (variant, int) {
	i, _ := slices.BinarySearchFunc(a, true, func(s variant, _ bool) int {
		if q.findNode(s.request) == nowhere {
			return -1
		}
		return 0
	})
	if i == len(a) {
		return variant{}, nowhere
	}
	return a[i], q.findNode(a[i].request)
}

// variant is a changed request with the edits that produce it. loss is the sum of the reductions, each in per mille of what was requested.
type variant struct {
	request share.Request
	edits   []Edit
	loss    int64
}

// variants lists requests in which one quantity is lower than requested, smallest reduction first.
type variants []variant
