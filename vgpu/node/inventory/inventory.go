// Package inventory turns what a machine has into what its node offers: the published inventory, and the slices that the
// agent itself goes by. Devices come and go; what is offered never shrinks while pods are bound (DESIGN 2).
package inventory

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Config is what the administrator decided.
type Config struct {
	Owned     []string          // UUIDs or indices of devices that are gshare's; empty: all
	Closed    []string          // UUIDs of devices and slices that take no new pods
	Classes   []share.Isolation // what this node can enforce
	Reserve   share.PerMille
	MaxShares int
}

// Inventory is the slices of a node, in an order that is kept.
type Inventory struct {
	slices []Slice
}

// Slice is one of them, and what is special about it now.
type Slice struct {
	kube.Slice        // Healthy and Reason follow from what is said here
	Fault      string // why it cannot be used; empty where it can
	Closed     bool   // takes no new pods; what runs, and what was bound before, goes on
	Used       string // by whom it is used without a share; takes no new pods, also of those bound before; what runs goes on
	Index      int    // of the device, in the driver's order
}

func (c Config) owns(d gpu.Device) bool {
	return len(c.Owned) == 0 || slices.Contains(c.Owned, d.UUID) || slices.Contains(c.Owned, strconv.Itoa(d.Index))
}

// of lists the slices of the devices. A device in MIG mode is there with its instances, also where it has none.
func (c Config) of(devices []gpu.Device) (found []Slice) {
	for _, d := range devices {
		if !c.owns(d) || d.SMs == 0 { // too broken to say what it is
			continue
		}
		if !d.MIG {
			found = append(found, c.slice(d, gpu.Instance{UUID: d.UUID, SMs: d.SMs, Memory: d.Memory}))
			continue
		}
		for _, i := range d.Instances {
			found = append(found, c.slice(d, i))
		}
	}
	return found
}

func (c Config) slice(d gpu.Device, i gpu.Instance) Slice {
	s := Slice{
		Slice: kube.Slice{
			ID: i.UUID, Device: d.UUID, Model: d.Model, Profile: i.Profile, Room: i.MemorySlices, SMs: i.SMs, MemoryMiB: int64(i.Memory / share.MiB),
			Classes: c.Classes, Reserve: c.Reserve, MaxShares: c.MaxShares,
		},
		Index: d.Index, Fault: cmp.Or(d.Fault, i.Fault), Closed: c.closes(d.UUID, i.UUID),
	}
	s.judge()
	return s
}

func (c Config) closes(device, slice string) bool {
	return slices.Contains(c.Closed, device) || slices.Contains(c.Closed, slice)
}

// judge says whether the slice takes new pods, and why it takes none: of several reasons the one that needs most to be seen to.
func (s *Slice) judge() {
	s.Reason = ""
	switch {
	case s.Fault != "":
		s.Reason = kube.ReasonFault
	case s.Used != "":
		s.Reason = kube.ReasonUsed
	case s.Closed:
		s.Reason = kube.ReasonCordoned
	}
	s.Healthy = s.Reason == ""
}

// The faults of slices of which the driver does not say what they have.
const (
	gone      = "the driver does not find it any more"
	withdrawn = "the place is not offered any more, or its GPU is gone"
	before    = "it had failed when the driver was asked last"
)

// Update gives the inventory for what is found now. Slices keep their places, because tickets are numbered by them. Those that
// are gone stay as unhealthy ones, and their tickets with them, until no pod is bound, or as long as their device does not tell all of
// its instances.
func (inv Inventory) Update(c Config, devices []gpu.Device, bound bool) Inventory {
	found := c.of(devices)
	var next []Slice
	for _, old := range inv.slices {
		i := slices.IndexFunc(found, func(s Slice) bool { return s.ID == old.ID })
		fault := c.unread(devices, old.Device)
		if fault == "" && bound {
			fault = missing(old)
		}
		switch {
		case i >= 0 && bound:
			next = append(next, grown(found[i], old))
		case i >= 0:
			next = append(next, found[i])
		case fault != "" && !conflicts(found, old):
			old.Fault = fault
			old.judge()
			next = append(next, old)
		}
		if i >= 0 {
			found = slices.Delete(found, i, i+1)
		}
	}
	return Inventory{append(next, found...)}
}

// missing says what became of a slice that is not found.
func missing(old Slice) string {
	if old.Room != 0 { // which the driver has never known
		return withdrawn
	}
	return gone
}

// grown keeps the number of tickets where there are less now.
func grown(now, old Slice) Slice {
	now.MaxShares = max(now.MaxShares, old.MaxShares)
	return now
}

// unread says why a device does not tell all of its instances; empty where it does.
func (c Config) unread(devices []gpu.Device, uuid string) string {
	for _, d := range devices {
		switch {
		case d.UUID != uuid || !d.MIG || !c.owns(d):
		case len(d.Instances) == 0:
			return cmp.Or(d.Fault, d.Incomplete)
		default:
			return d.Incomplete
		}
	}
	return ""
}

// conflicts says that an old slice cannot stand beside what is found: a GPU is offered whole or in parts.
func conflicts(found []Slice, old Slice) bool {
	return slices.ContainsFunc(found, func(s Slice) bool { return s.Device == old.Device && (s.Profile == "") != (old.Profile == "") })
}

// From takes over what the node has published. What the driver said of a slice holds until it says more; the rest is looked at anew.
func From(c Config, published kube.Inventory) Inventory {
	var inv Inventory
	for _, s := range published.Slices {
		slice := Slice{Slice: s, Closed: c.closes(s.Device, s.ID)}
		if s.Reason == kube.ReasonFault || !s.Healthy && s.Reason == "" { // the latter by an agent that did not say why yet
			slice.Fault = before
		}
		slice.judge()
		inv.slices = append(inv.slices, slice)
	}
	return inv
}

// Slices lists the slices.
func (inv Inventory) Slices() []Slice { return inv.slices }

// Published is what goes into the node's annotation.
func (inv Inventory) Published() kube.Inventory {
	var out kube.Inventory
	for _, s := range inv.slices {
		out.Slices = append(out.Slices, s.Slice)
	}
	return out
}

// Shut is what is published while the node takes no pods at all. A slice that has a reason of its own keeps it.
func (inv Inventory) Shut(why kube.Reason) kube.Inventory {
	out := inv.Published()
	for i := range out.Slices {
		if s := &out.Slices[i]; s.Healthy {
			s.Healthy, s.Reason = false, why
		}
	}
	return out
}

// Packing is what the agent admits by: a slice that is only closed still takes the pods that were bound to it before.
func (inv Inventory) Packing() []packing.Slice {
	out := make([]packing.Slice, len(inv.slices))
	for i, s := range inv.slices {
		out[i] = packing.Slice{
			ID: packing.SliceID(s.ID), Device: s.Device, Model: s.Model, Profile: s.Profile, Room: s.Room, SMs: s.SMs,
			Memory: share.Bytes(s.MemoryMiB) * share.MiB, Classes: s.Classes, Healthy: s.Fault == "",
			Reserve: s.Reserve, MaxShares: s.MaxShares,
		}
	}
	return out
}

// Shares is how many tickets each slice has.
func (inv Inventory) Shares() []int { return kube.Tickets(inv.Published()) }
