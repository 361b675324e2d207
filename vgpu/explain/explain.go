// Package explain finds out why slices refuse a pod, and which smallest change to its request would get it admitted. It makes no decisions
// of its own: it runs the packer on changed requests.
package explain

import (
	"slices"
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
