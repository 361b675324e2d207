// Package nodeview translates Kubernetes nodes and pods into the types of vgpu/packing, and computes which shares are on the slices of a node.
// The scheduler plugins use it to decide, and gshare explain uses it to show their decisions.
package nodeview

import (
	"cmp"
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Errors that make a node untrusted: it is not certain what its slices hold, so nothing is placed on it until they are resolved.
var (
	ErrInventory  = errors.New("gshare inventory is malformed")
	ErrPlacement  = errors.New("a pod's gshare placement is malformed")
	ErrUnknownUse = errors.New("a pod uses gshare GPUs without a placement")
	ErrNominated  = errors.New("GPUs are kept for a nominated pod")
)

// Occupant is a placement that occupies slices of a node, with the namespace (Tenant) and workload of its pod, and the level at which it is
// counted there.
type Occupant struct {
	Pod       *v1.Pod // nil for an assumed placement whose pod is not on the node yet
	Tenant    string
	Workload  string
	Placement kube.Placement
	Level     residency.Level // the zero value, Cold, counts as Hot
	Kept      share.Bytes     // part of each vGPU's memory that it keeps at level Warm
}

// Charge returns what a vGPU of the placement counts for on its slice: its share, reduced to what the level of its pod still holds. A vGPU of
// class swap counts in full at every level, because its next turn may come at any time.
func (o Occupant) Charge(v kube.PlacedVGPU) share.Share {
	if o.Level == residency.Cold || v.Class == share.Swap {
		return v.Share
	}
	return o.Level.Charge(v.Share, o.Kept)
}

// OccupancyBuilder computes which shares are on the slices of one node. Call AddPod or AddPlacement for each pod, then Build.
type OccupancyBuilder struct {
	Node       *packing.Node             // with empty slices; Build fills them
	Packer     packing.Packer            // places pods that have no placement
	PodRequest func(*v1.Pod) *PodRequest // PodRequestOf, or a cache of its results

	placed  []Occupant
	virtual []*v1.Pod // pods that request shares but have no placement
	err     error
}

// AddPlacement adds a placement that is not in the pod's annotation yet, such as one that the scheduler has assumed.
func (d *OccupancyBuilder) AddPlacement(o Occupant) { d.placed = append(d.placed, o) }

// Occupants returns the added placements; after Build in the order in which they were put on the slices, by pod UID.
func (d *OccupancyBuilder) Occupants() []Occupant { return d.placed }

// AddPod adds a pod of the node with the placement in its annotation. The annotation is used only if the pod is bound and requests shares; on any
// other pod, anyone may have written it.
func (d *OccupancyBuilder) AddPod(pod *v1.Pod) {
	said, bound := d.PodRequest(pod), pod.Spec.NodeName != ""
	switch {
	case !said.Asks:
	case bound && said.Placed && said.PlacementErr == nil && said.Placement.Node == d.Node.Name:
		d.AddPlacement(Occupant{pod, pod.Namespace, said.Pod.Request.Workload, said.Placement, said.Level, said.Kept})
	case bound && said.Placed:
		d.err = ErrPlacement
	case said.RequestErr != nil:
		d.err = ErrUnknownUse
	default:
		d.virtual = append(d.virtual, pod)
	}
}

// Build puts the shares of placed pods on the node's slices, and then those of every other pod where the packer would place them now: first pods
// that are bound here, then nominated ones, each by priority and then by UID. Nominated pods wait for terminating pods of lower priority to go,
// so those do not count. Where a pod is put depends on this node alone; otherwise Reserve could refuse for ever what Filter admits. The error is
// ErrPlacement, ErrUnknownUse or ErrNominated.
func (d *OccupancyBuilder) Build() error {
	slices.SortFunc(d.virtual, func(a, b *v1.Pod) int {
		return cmp.Or(cmp.Compare(nominated(a), nominated(b)),
			cmp.Compare(Priority(b), Priority(a)), cmp.Compare(a.UID, b.UID))
	})
	d.addPlaced()
	return cmp.Or(d.err, d.placeUnplaced())
}

// placeUnplaced puts each pod without a placement on the slices that it would get now. It returns ErrNominated if a nominated pod does not fit. A
// bound pod that does not fit is left out: the agent grants nothing without a placement, and anyone may set spec.nodeName, so such a pod must not
// keep others off the node.
func (d *OccupancyBuilder) placeUnplaced() error {
	for _, pod := range d.virtual {
		said := d.PodRequest(pod)
		switch plan, _, refusal := d.Packer.Place(d.Node, &said.Pod); {
		case refusal == packing.Admitted:
			d.Node.Take(d.Packer.Rules.Model, &said.Pod, plan)
		case pod.Spec.NodeName == "":
			return ErrNominated
		}
	}
	return nil
}

func nominated(pod *v1.Pod) int {
	if pod.Spec.NodeName == "" {
		return 1
	}
	return 0
}

func (d *OccupancyBuilder) addPlaced() {
	slices.SortFunc(d.placed, func(a, b Occupant) int { return cmp.Compare(a.Placement.UID, b.Placement.UID) })
	for _, o := range d.placed {
		if o.Pod == nil || !d.isPreempted(o.Pod) {
			addShares(d.Node, o)
		}
	}
}

// isPreempted reports whether the pod is terminating and a nominated pod of higher priority waits for its space. kube-scheduler filters a second
// time without nominated pods, and the terminating pod counts then.
func (d *OccupancyBuilder) isPreempted(pod *v1.Pod) bool {
	return pod.DeletionTimestamp != nil && slices.ContainsFunc(d.virtual, func(v *v1.Pod) bool {
		return v.Spec.NodeName == "" && Priority(v) > Priority(pod)
	})
}

// Priority returns the scheduling priority of a pod, or 0 if none is set.
func Priority(pod *v1.Pod) int32 {
	if pod.Spec.Priority == nil {
		return 0
	}
	return *pod.Spec.Priority
}

// Slices converts the slices of a node's inventory into those of the packer, with the rules of the node.
func Slices(inv kube.Inventory) []packing.Slice {
	rules := inv.RulesOrDefault()
	out := make([]packing.Slice, len(inv.Slices))
	for i, s := range inv.Slices {
		out[i] = packing.Slice{
			ID: packing.SliceID(s.ID), Device: s.Device, Model: s.Model, Profile: s.Profile, MemorySlices: s.Room, SMs: s.SMs,
			Memory: share.Bytes(s.MemoryMiB) * share.MiB, Classes: s.Classes, Healthy: s.Healthy,
			Reserve: s.Reserve, MaxShares: s.MaxShares, Gamma: rules.GammaPercent * 10, MixTenants: rules.MixTenants, Locality: LocalityOf(s.NUMA, s.NVLink), Store: s.Store,
			Swap: swapSpaceOf(s.Swap),
		}
	}
	return out
}

func swapSpaceOf(s *kube.Swap) packing.SwapSpace {
	if s == nil {
		return packing.SwapSpace{}
	}
	return packing.SwapSpace{Host: share.Bytes(s.HostMiB) * share.MiB, Kept: share.Bytes(s.KeptMiB) * share.MiB}
}

// LocalityOf returns where a GPU is, given its NUMA node (nil if not known) and its NVLink set. The packer numbers NUMA nodes from 1.
func LocalityOf(numa *int, nvlink int) packing.Locality {
	at := packing.Locality{NVLink: nvlink}
	if numa != nil {
		at.NUMA = *numa + 1
	}
	return at
}

// addShares adds the shares of a placed pod to the node's slices. It skips shares on slices that the inventory no longer lists; they count again
// once the slice is listed again.
func addShares(n *packing.Node, o Occupant) {
	for _, c := range o.Placement.Containers {
		for _, v := range c.VGPUs {
			if i, ok := n.SliceIndex(packing.SliceID(v.Slice)); ok {
				v.Share = o.Charge(v)
				n.Loads[i].Add(ResidentOf(o.Tenant, o.Workload, o.Placement, v))
			}
		}
	}
}

// ResidentOf converts a vGPU of a pod's placement, with the pod's namespace and workload, into what the packer counts on its slice.
func ResidentOf(namespace, workload string, p kube.Placement, v kube.PlacedVGPU) packing.Resident {
	return packing.Resident{
		Tenant: namespace, Model: packing.Model(p.Model), Class: v.Class, Share: v.Share, Use: packing.Use{Workload: workload},
		Weights: p.Weights, AntiAffinity: p.AntiAffinity,
	}
}
