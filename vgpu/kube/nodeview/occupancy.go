// Package nodeview translates nodes and pods into the types of vgpu/packing: which shares are on the slices of a node. Scheduler
// plugins decide on it, and kubectl gshare explains their decisions from it.
package nodeview

import (
	"cmp"
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// Errors that make a node untrusted: what its slices hold is not certain, so nothing is placed on it until they are resolved.
var (
	ErrInventory  = errors.New("gshare inventory is malformed")
	ErrPlacement  = errors.New("a pod's gshare placement is malformed")
	ErrUnknownUse = errors.New("a pod uses gshare GPUs without a placement")
	ErrNominated  = errors.New("GPUs are kept for a nominated pod")
)

// Occupant is a placement that takes space on a node.
type Occupant struct {
	Pod       *v1.Pod // nil for an assumed placement whose pod is not on the node yet
	Tenant    string
	Workload  string
	Placement kube.Placement
}

// Derivation computes what the slices of one node hold. Call Place or Add for each pod, then Load.
type Derivation struct {
	Node       *packing.Node             // with empty slices; Load fills them
	Packer     packing.Packer            // places pods that nobody has placed
	PodRequest func(*v1.Pod) *PodRequest // Read, or what remembers its answers

	placed  []Occupant
	virtual []*v1.Pod // ask for GPUs, but nobody has placed them
	err     error
}

// Place adds a placement that is known from elsewhere than the pod's annotation.
func (d *Derivation) Place(o Occupant) { d.placed = append(d.placed, o) }

// Placed returns the added placements; after Load in the order in which they were put on the slices, by pod UID.
func (d *Derivation) Placed() []Occupant { return d.placed }

// Add adds a pod of the node with the placement in its annotation. Only a bound pod that requests shares has a valid one: on other
// pods anybody may have written it.
func (d *Derivation) Add(pod *v1.Pod) {
	said, bound := d.PodRequest(pod), pod.Spec.NodeName != ""
	switch {
	case !said.Asks:
	case bound && said.Placed && said.PlacementErr == nil && said.Placement.Node == d.Node.Name:
		d.Place(Occupant{pod, pod.Namespace, said.Pod.Request.Workload, said.Placement})
	case bound && said.Placed:
		d.err = ErrPlacement
	case said.RequestErr != nil:
		d.err = ErrUnknownUse
	default:
		d.virtual = append(d.virtual, pod)
	}
}

// Load puts the placed pods on the node's slices, and then every other pod where it would be placed now: first pods bound here, then
// nominated ones, each by priority and then by UID. Nominated pods wait for terminating pods of lower priority, which therefore do
// not count. Where a pod is put depends on this node alone; otherwise Reserve could refuse for ever what Filter admits. The error
// is one of those that make the node untrusted.
func (d *Derivation) Load() error {
	slices.SortFunc(d.virtual, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(nominated(a), nominated(b)),
			cmp.Compare(Priority(b), Priority(a)), cmp.Compare(a.UID, b.UID))
	})
	d.loadPlaced()
	return cmp.Or(d.err, d.placeUnplaced())
}

// placeUnplaced puts pods without a placement where they would be placed now.
func (d *Derivation) placeUnplaced() error {
	for _, pod := range d.virtual {
		said := d.PodRequest(pod)
		plan, _, refusal := d.Packer.Place(d.Node, &said.Pod)
		if refusal != packing.Admitted {
			return placementError(pod)
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

func placementError(pod *v1.Pod) error {
	if pod.Spec.NodeName == "" {
		return ErrNominated
	}
	return ErrUnknownUse
}

func (d *Derivation) loadPlaced() {
	slices.SortFunc(d.placed, func(a, b Occupant) int { return cmp.Compare(a.Placement.UID, b.Placement.UID) })
	for _, o := range d.placed {
		if o.Pod == nil || !d.makesWay(o.Pod) {
			load(d.Node, o)
		}
	}
}

// makesWay reports whether the pod is terminating and a nominated pod of higher priority waits for its space. The framework filters
// a second time without nominated pods, and then the terminating pod counts.
func (d *Derivation) makesWay(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil && slices.ContainsFunc(d.virtual, func(v *v1.Pod) bool {
		return v.Spec.NodeName == "" && Priority(v) > Priority(pod)
	})
}

// Priority returns the scheduling priority of a pod, or 0 where none is set.
func Priority(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}
