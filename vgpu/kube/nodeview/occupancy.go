// Package nodeview turns nodes and pods into the terms of vgpu/packing: what the slices of a node hold, and whether that can
// be trusted. The scheduler plugins decide on it, and the command line explains their decisions from it.
package nodeview

import (
	"cmp"
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// The reasons for which a node is not trusted. Nothing is placed on it until they are gone.
var (
	ErrInventory  = errors.New("gshare inventory is malformed")
	ErrPlacement  = errors.New("a pod's gshare placement is malformed")
	ErrUnknownUse = errors.New("a pod uses gshare GPUs without a placement")
	ErrNominated  = errors.New("GPUs are kept for a nominated pod")
)

// Occupant is a placement that counts on a node.
type Occupant struct {
	Pod       *v1.Pod // nil for a promise whose pod is not on the node yet
	Tenant    string
	Workload  string
	Placement kube.Placement
}

// Derivation collects the pods of one node: Add or Place each, then Load.
type Derivation struct {
	Node   *packing.Node            // with empty slices; Load fills them
	Packer packing.Packer           // places pods that nobody has placed
	Read   func(*v1.Pod) *Statement // Read, or what remembers its answers

	placed  []Occupant
	virtual []*v1.Pod // ask for GPUs, but nobody has placed them
	err     error
}

// Place counts a placement that is known otherwise than from the pod.
func (d *Derivation) Place(o Occupant) { d.placed = append(d.placed, o) }

// Placed lists what was placed; after Load it is in the order in which the slices were loaded.
func (d *Derivation) Placed() []Occupant { return d.placed }

// Add counts a pod of the node by its own annotation. It takes a placement only from a bound pod that asks for GPUs: anybody
// might have written it on another.
func (d *Derivation) Add(pod *v1.Pod) {
	said, bound := d.Read(pod), pod.Spec.NodeName != ""
	switch {
	case !said.Asks:
	case bound && said.Placed && said.PlaceErr == nil && said.Placement.Node == d.Node.Name:
		d.Place(Occupant{pod, pod.Namespace, said.Pod.Request.Workload, said.Placement})
	case bound && said.Placed:
		d.err = ErrPlacement
	case said.RequestErr != nil:
		d.err = ErrUnknownUse
	default:
		d.virtual = append(d.virtual, pod)
	}
}

// Load loads the placed pods, then gives every other one the place it would get now: first those that run here already, then
// the nominated, each by priority and then by UID. Pods that are nominated wait for lower-priority pods to end, so those do
// not count against them. Where a pod would go must not depend on anything but this node, or Reserve could refuse for ever
// what Filter admits. The error says why the node is in doubt.
func (d *Derivation) Load() error {
	slices.SortFunc(d.virtual, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(nominated(a), nominated(b)),
			cmp.Compare(Priority(b), Priority(a)), cmp.Compare(a.UID, b.UID))
	})
	d.loadPlaced()
	return cmp.Or(d.err, d.placeVirtually())
}

func (d *Derivation) placeVirtually() error {
	for _, pod := range d.virtual {
		said := d.Read(pod)
		plan, _, refusal := d.Packer.Place(d.Node, &said.Pod)
		if refusal != packing.Admitted {
			return doubt(pod)
		}
		d.Node.Take(d.Packer.Rules.Model, &said.Pod, plan)
	}
	return nil
}

func nominated(pod *v1.Pod) int {
	if pod.Spec.NodeName == "" {
		return 1
	}
	return 0
}

func doubt(pod *v1.Pod) error {
	if pod.Spec.NodeName == "" {
		return ErrNominated
	}
	return ErrUnknownUse
}

func (d *Derivation) loadPlaced() {
	slices.SortFunc(d.placed, func(a, b Occupant) int { return cmp.Compare(a.Placement.UID, b.Placement.UID) })
	for _, o := range d.placed {
		if o.Pod == nil || !d.leavesFor(o.Pod) {
			load(d.Node, o)
		}
	}
}

// leavesFor says that the pod is ending and makes room for a nominated pod of higher priority. The framework filters once
// more without nominated pods, and there the ending pod counts.
func (d *Derivation) leavesFor(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil && slices.ContainsFunc(d.virtual, func(v *v1.Pod) bool {
		return v.Spec.NodeName == "" && Priority(v) > Priority(pod)
	})
}

// Priority is the scheduling priority of a pod; zero where none is set.
func Priority(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}
