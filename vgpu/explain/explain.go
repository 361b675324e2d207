// Package explain finds out why slices refuse a pod, and which smallest change to its request would get it admitted. It makes no decisions
// of its own: it runs the packer on changed requests.
package explain

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Search finds changes to a pod's request that let it fit one of the given nodes. It tries changes of two quantities on the first nodes
// only.
type Search struct {
	Packer packing.Packer
	Nodes  []*packing.Node
	Pod    *packing.Pod

	Annotations map[string]string // of the pod, as written
}

// SliceRefusals returns, for each slice of a node and each container of the pod, why the slice refuses the container. Each container is
// judged as if it were the pod's only one.
func SliceRefusals(rules packing.Rules, n *packing.Node, pod *packing.Pod) [][]packing.Refusal {
	out := make([][]packing.Refusal, len(n.Slices))
	for i := range n.Slices {
		for c := range pod.Request.Containers {
			ask := packing.ShareRequest{Tenant: pod.Tenant, Terms: pod.Request.TermsOf(c), Share: pod.Request.Containers[c].Share}
			_, refusal := rules.AdmitOn(n, i, ask)
			out[i] = append(out[i], refusal)
		}
	}
	return out
}

// findNode returns the index of the first node that the pod fits with the changed request, or nowhere.
func (q *Search) findNode(r share.Request) int {
	if r.Validate() != nil || r.ValidateDevices() != nil {
		return nowhere
	}
	pod := *q.Pod
	pod.Request = r
	return slices.IndexFunc(q.Nodes, func(n *packing.Node) bool {
		_, _, refusal := q.Packer.Place(n, &pod)
		return refusal == packing.Admitted
	})
}

const nowhere = -1

// cloneRequest copies the request and its list of containers, which is all that changes modify.
func cloneRequest(r share.Request) share.Request {
	r.Containers = slices.Clone(r.Containers)
	return r
}

// advice holds, for each reason why the packer refuses a pod, what a user or an administrator can do about it.
var advice = [...]string{
	packing.NoSlices:          "an administrator has to run the node agent there",
	packing.WrongKind:         "gshare.dev/slice, or that of a container, asks for another kind of slice than the node has",
	packing.WrongModel:        "name a model of the node in gshare.dev/model, or name none",
	packing.Unhealthy:         "the node agent takes no new pods on these slices: they have failed, are cordoned or used by others, or the agent is being replaced; explain and doctor say which",
	packing.NotEnforceable:    "leave out gshare.dev/isolation, or let the node's agent offer the class (MPS has to work there for mps and elastic)",
	packing.NoStore:           "leave out gshare.dev/weights and ask for them in gshare/mem, or let an administrator switch on the node's model store",
	packing.TooLarge:          "ask for less than one slice has, or for more vGPUs",
	packing.TooFewDevices:     "ask for no more vGPUs than the node has GPUs: they are all on one node",
	packing.OtherClass:        "a slice has one isolation class at a time: wait until one is empty, or ask for the class that it has",
	packing.OtherPackingModel: "a slice has one packing model at a time: wait until one is empty, or use the scheduler name of its pods",
	packing.OtherTenant:       "a slice is for one namespace at a time: wait until one is empty, or an administrator sets tenancy: mixed in the configuration of the node's agent",
	packing.SliceFull:         "wait until a pod there ends: the slice has as many shares as its node allows",
	packing.NoMemory:          "ask for less gshare/mem, or wait until a pod there ends",
	packing.OverLimits:        "lower gshare.dev/sm-limit or gshare.dev/quota-limit, or wait until a pod there ends",
	packing.NoSMTime:          "ask for less gshare/sm or gshare/quota, or wait until a pod there ends",
	packing.Repelled:          "gshare.dev/anti-affinity: wait until a pod of the namespace with the same key ends there, or add a GPU that has none",
	packing.NoJointPlacement:  "each container would fit alone: ask for less, or put them into pods of their own",
}

// Advice returns what a user or an administrator can do about a refusal, as a clause, or "" if nothing was refused.
func Advice(r packing.Refusal) string { return advice[r] }

// termChanges returns the changes of one of the pod's conditions, such as GPU model or isolation class, that let the pod fit a node while
// its quantities stay as they are. If several values of a condition help, it returns the first.
func (q *Search) termChanges() (found []Change) {
	for _, alternatives := range [][]variant{q.modelVariants(), q.isolationVariants(), q.sliceVariants(), q.enforcementVariants(), q.antiAffinityVariants()} {
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

// sliceVariants returns the requests for another kind of slice: a whole GPU, or a MIG profile that one of the nodes has. Each container
// that names its own kind of slice is changed alone; the others, which follow the pod's annotation, are changed together.
func (q *Search) sliceVariants() (steps []variant) {
	now, asked := q.Pod.Request.Slice, q.Pod.Request.Containers
	kinds := append([]string{share.WholeGPU}, q.distinctValues(func(n, i int) string { return q.Nodes[n].Slices[i].Profile })...)
	for _, kind := range kinds {
		if kind != now && slices.ContainsFunc(asked, func(c share.Container) bool { return c.Slice == "" }) {
			steps = append(steps, q.newTermVariant(share.FieldSlice, now, kind, func(t *share.Terms) { t.Slice = kind }))
		}
	}
	for c := range asked {
		for _, kind := range kinds {
			if own := asked[c].Slice; own != "" && kind != own {
				changed := cloneRequest(q.Pod.Request)
				changed.Containers[c].Slice = kind
				steps = append(steps, variant{request: changed, edits: []Edit{{Field: share.FieldContainerSlice + asked[c].Name, From: own, To: kind}}})
			}
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

// antiAffinityVariants returns the request without its anti-affinity, or nothing if it has none.
func (q *Search) antiAffinityVariants() []variant {
	now := q.Pod.Request.AntiAffinity
	if now == "" {
		return nil
	}
	return []variant{q.newTermVariant(share.FieldAntiAffinity, now, "", func(t *share.Terms) { t.AntiAffinity = "" })}
}

// distinctValues returns the values of a property over all slices of the nodes, sorted, each once, without the empty value.
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

// moreGPUs returns, for each container that asks for more memory than any GPU has, the change to the fewest whole GPUs that have it
// together. The scheduler cannot make this change by itself: the pod says how many GPUs a container gets, and the container's program has
// to divide the model between them.
func (q *Search) moreGPUs() (found []Change) {
	for c := range q.Pod.Request.Containers {
		if !q.isTooLarge(c) {
			continue
		}
		for n := q.Pod.Request.Containers[c].VGPUs + 1; n <= q.mostDevices(); n++ {
			s := q.onWholeGPUs(c, n)
			if node := q.findNode(s.request); node != nowhere {
				found = append(found, Change{Edits: s.edits, Node: q.Nodes[node].Name})
				break
			}
		}
	}
	return found
}

// isTooLarge reports whether container c runs on GPUs that are not divided by MIG and asks for more memory per vGPU, weights included, than
// any of them has.
func (q *Search) isTooLarge(c int) bool {
	if q.Pod.Request.TermsOf(c).Slice != share.WholeGPU {
		return false
	}
	memory := q.Pod.Request.Containers[c].Share.Memory + share.MemoryOf(q.Pod.Request.Weights)
	return !slices.ContainsFunc(q.Nodes, func(n *packing.Node) bool {
		return slices.ContainsFunc(n.Slices, func(s packing.Slice) bool { return s.Profile == "" && s.Memory >= memory })
	})
}

// mostDevices returns the largest number of GPUs that a node has, but at most the number that a pod may have.
func (q *Search) mostDevices() (most int) {
	for _, n := range q.Nodes {
		seen := map[string]bool{}
		for i := range n.Slices {
			seen[n.Slices[i].Device] = true
		}
		most = max(most, len(seen))
	}
	return min(most, share.MaxVGPUs)
}

// onWholeGPUs returns the request with container c on n whole GPUs, each with an equal part of the container's memory, rounded up to whole
// MiB.
func (q *Search) onWholeGPUs(c, n int) variant {
	changed := cloneRequest(q.Pod.Request)
	container := &changed.Containers[c]
	before, mib := *container, func(x share.Container) int64 { return int64(x.Share.Memory/share.MiB) * int64(x.VGPUs) }
	container.VGPUs = n
	container.Share = share.Share{
		SMRequest: share.Whole, SMLimit: share.Whole, QuotaRequest: share.Whole, QuotaLimit: share.Whole,
		Memory: share.Bytes((mib(before)+int64(n)-1)/int64(n)) * share.MiB,
	}
	s := variant{request: changed}
	for _, e := range []struct {
		field    string
		from, to int64
	}{
		{share.FieldVGPU, int64(before.VGPUs), int64(n)},
		{share.FieldSM, int64(before.Share.SMRequest/percent) * int64(before.VGPUs), 100 * int64(n)},
		{share.FieldQuota, int64(before.Share.QuotaRequest / percent), 100},
		{share.FieldMemory, mib(before), mib(*container)},
	} {
		if e.from != e.to {
			s.edits = append(s.edits, newEdit(before.Name, e.field, e.from, e.to))
		}
	}
	if l := before.Share.SMLimit; l > before.Share.SMRequest && l < share.Whole { // limits are annotations of the pod; the edit removes them
		s.edits = append(s.edits, Edit{Field: share.FieldSMLimit, From: strconv.Itoa(int(l / percent))})
	}
	if l := before.Share.QuotaLimit; l > before.Share.QuotaRequest && l < share.Whole {
		s.edits = append(s.edits, Edit{Field: share.FieldQuotaLimit, From: strconv.Itoa(int(l / percent))})
	}
	return s
}
