package explain

import (
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// terms tries other terms, one at a time, without changing a quantity. Of several values that help it names the first.
func (q *Question) terms() (found []Change) {
	for _, alternatives := range [][]step{q.models(), q.isolations(), q.kinds(), q.enforcements()} {
		for _, s := range alternatives {
			if node := q.fits(s.request); node != nowhere {
				found = append(found, Change{Edits: s.edits, Node: q.Nodes[node].Name})
				break
			}
		}
	}
	return found
}

func (q *Question) term(field, from, to string, set func(*share.Terms)) step {
	changed := clone(q.Pod.Request)
	set(&changed.Terms)
	return step{request: changed, edits: []Edit{{Field: field, From: from, To: to}}}
}

// models adds one model to those that are accepted.
func (q *Question) models() (steps []step) {
	accepted := q.Pod.Request.Models
	if len(accepted) == 0 {
		return nil
	}
	for _, m := range q.present(func(n, i int) string { return q.Nodes[n].Slices[i].Model }) {
		more := slices.Sorted(slices.Values(append(slices.Clone(accepted), m)))
		steps = append(steps, q.term(share.FieldModel, strings.Join(accepted, ","), strings.Join(more, ","),
			func(t *share.Terms) { t.Models = more }))
	}
	return steps
}

func (q *Question) isolations() (steps []step) {
	now := q.Pod.Request.Isolation
	for _, class := range []share.Isolation{share.AnyIsolation, share.MPS, share.Elastic, share.Exclusive} {
		if class != now {
			steps = append(steps, q.term(share.FieldIsolation, string(now), string(class), func(t *share.Terms) { t.Isolation = class }))
		}
	}
	return steps
}

// kinds names whole GPUs, and the MIG profiles that there are.
func (q *Question) kinds() (steps []step) {
	now := q.Pod.Request.Slice
	for _, kind := range append([]string{share.WholeGPU}, q.present(func(n, i int) string { return q.Nodes[n].Slices[i].Profile })...) {
		if kind != now {
			steps = append(steps, q.term(share.FieldSlice, now, kind, func(t *share.Terms) { t.Slice = kind }))
		}
	}
	return steps
}

func (q *Question) enforcements() []step {
	now, other := q.Pod.Request.Enforcement, share.BestEffortEnforcement
	if now == other {
		return nil
	}
	return []step{q.term(share.FieldEnforcement, string(now), string(other), func(t *share.Terms) { t.Enforcement = other })}
}

// present returns what slices have, sorted, each once; empty values are left out.
func (q *Question) present(of func(node, slice int) string) (list []string) {
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
