package explain

import (
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// termChanges returns the changes of one of the pod's conditions, such as GPU model or isolation class, that let the pod fit a node with
// its quantities unchanged. Of several helpful values of a condition it returns the first.
func (q *Search) termChanges() (found []Change) {
	for _, alternatives := range [][]variant{q.modelVariants(), q.isolationVariants(), q.sliceVariants(), q.enforcementVariants()} {
		for _, s := range alternatives {
			if node := q.findNode(s.request); node != nowhere {
				found = append(found, Change{Edits: s.edits, Node: q.Nodes[node].Name})
				break
			}
		}
	}
	return found
}

func (q *Search) newTermVariant(field, from, to string, set func(*share.Terms)) variant {
	changed := cloneRequest(q.Pod.Request)
	set(&changed.Terms)
	return variant{request: changed, edits: []Edit{{Field: field, From: from, To: to}}}
}

// modelVariants returns the requests that accept one more GPU model.
func (q *Search) modelVariants() (steps []variant) {
	accepted := q.Pod.Request.Models
	if len(accepted) == 0 {
		return nil
	}
	for _, m := range q.distinctValues(func(n, i int) string { return q.Nodes[n].Slices[i].Model }) {
		more := slices.Sorted(slices.Values(append(slices.Clone(accepted), m)))
		steps = append(steps, q.newTermVariant(share.FieldModel, strings.Join(accepted, ","), strings.Join(more, ","),
			func(t *share.Terms) { t.Models = more }))
	}
	return steps
}

func (q *Search) isolationVariants() (steps []variant) {
	now := q.Pod.Request.Isolation
	for _, class := range []share.Isolation{share.AnyIsolation, share.MPS, share.Elastic, share.Exclusive} {
		if class != now {
			steps = append(steps, q.newTermVariant(share.FieldIsolation, string(now), string(class), func(t *share.Terms) { t.Isolation = class }))
		}
	}
	return steps
}

// sliceVariants returns the requests for another kind of slice: a whole GPU, or a MIG profile that one of the nodes has.
func (q *Search) sliceVariants() (steps []variant) {
	now := q.Pod.Request.Slice
	for _, kind := range append([]string{share.WholeGPU}, q.distinctValues(func(n, i int) string { return q.Nodes[n].Slices[i].Profile })...) {
		if kind != now {
			steps = append(steps, q.newTermVariant(share.FieldSlice, now, kind, func(t *share.Terms) { t.Slice = kind }))
		}
	}
	return steps
}

func (q *Search) enforcementVariants() []variant {
	now, other := q.Pod.Request.Enforcement, share.BestEffortEnforcement
	if now == other {
		return nil
	}
	return []variant{q.newTermVariant(share.FieldEnforcement, string(now), string(other), func(t *share.Terms) { t.Enforcement = other })}
}

// distinctValues returns the sorted distinct values of a property of the nodes' slices, without the empty one.
func (q *Search) distinctValues(of func(node, slice int) string) (list []string) {
	for n := range q.Nodes {
		for i := range q.Nodes[n].Slices {
			if v := of(n, i); v != "" {
				list = append(list, v)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
