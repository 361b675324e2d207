// Package inventory turns what a machine has into what its node offers: the published inventory, and the slices that the
// agent itself admits by. Devices come and go, but what is offered never shrinks while pods are bound.
package inventory

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Config is the administrator's configuration of a node's devices.
type Config struct {
	Owned     []string          // UUIDs or indices of the devices that gshare serves; empty: all
	Cordoned  []string          // UUIDs of devices and slices that take no new pods
	Classes   []share.Isolation // what this node can enforce
	Reserve   share.PerMille
	MaxShares int
}

// Inventory is the slices of a node, in an order that does not change.
type Inventory struct {
	slices []Slice
}

// Slice is one slice with its present state.
type Slice struct {
	kube.Slice        // Healthy and Reason follow from the fields below
	Fault      string // why it cannot be used; empty if it can
	Cordoned   bool   // takes no new pods, except those bound before
	Used       string // the user without a share, if there is one: takes no new pods, also none bound before
	Index      int    // of the device, in the driver's order
}

func (c Config) owns(d gpu.Device) bool {
	return len(c.Owned) == 0 || slices.Contains(c.Owned, d.UUID) || slices.Contains(c.Owned, strconv.Itoa(d.Index))
}

// of returns the slices of the devices: whole GPUs, or the instances of those in MIG mode.
func (c Config) of(devices []gpu.Device) (found []Slice) {
	for _, d := range devices {
		if !c.owns(d) || d.SMs == 0 { // too broken to report its size
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
		Index: d.Index, Fault: cmp.Or(d.Fault, i.Fault), Cordoned: c.cordons(d.UUID, i.UUID),
	}
	s.updateHealth()
	return s
}

func (c Config) cordons(device, slice string) bool {
	return slices.Contains(c.Cordoned, device) || slices.Contains(c.Cordoned, slice)
}

// updateHealth sets whether the slice takes new pods, and of several reasons against it the most urgent one.
func (s *Slice) updateHealth() {
	s.Reason = ""
	switch {
	case s.Fault != "":
		s.Reason = kube.ReasonFault
	case s.Used != "":
		s.Reason = kube.ReasonUsed
	case s.Cordoned:
		s.Reason = kube.ReasonCordoned
	}
	s.Healthy = s.Reason == ""
}

// Faults of slices whose state cannot be read from the driver.
const (
	gone      = "the driver does not find it any more"
	withdrawn = "the place is not offered any more, or its GPU is gone"
	before    = "it had failed when the driver was asked last"
)

// Update returns the inventory for the devices found now. Slices keep their positions, by which tickets are numbered. Slices that are
// gone stay as unhealthy ones while pods are bound, or while their device does not list all of its instances.
func (inv Inventory) Update(c Config, devices []gpu.Device, bound bool) Inventory {
	found := c.of(devices)
	var next []Slice
	for _, old := range inv.slices {
		i := slices.IndexFunc(found, func(s Slice) bool { return s.ID == old.ID })
		fault := c.incomplete(devices, old.Device)
		if fault == "" && bound {
			fault = missingFault(old)
		}
		switch {
		case i >= 0 && bound:
			next = append(next, keepTickets(found[i], old))
		case i >= 0:
			next = append(next, found[i])
		case fault != "" && !incompatible(found, old):
			old.Fault = fault
			old.updateHealth()
			next = append(next, old)
		}
		if i >= 0 {
			found = slices.Delete(found, i, i+1)
		}
	}
	return Inventory{append(next, found...)}
}

// missingFault returns the fault of a slice that is no longer found.
func missingFault(old Slice) string {
	if old.Room != 0 { // to be created on demand: the driver never had it
		return withdrawn
	}
	return gone
}

// keepTickets returns a slice with at least as many tickets as before.
func keepTickets(now, old Slice) Slice {
	now.MaxShares = max(now.MaxShares, old.MaxShares)
	return now
}

// incomplete returns why a device does not list all of its instances; empty if it does.
func (c Config) incomplete(devices []gpu.Device, uuid string) string {
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

// incompatible reports whether an old slice cannot exist beside those found, since a GPU is offered either whole or in parts.
func incompatible(found []Slice, old Slice) bool {
	return slices.ContainsFunc(found, func(s Slice) bool { return s.Device == old.Device && (s.Profile == "") != (old.Profile == "") })
}

// Restore returns the inventory that the node has published. Faults remain until the next update; the rest is determined again.
func Restore(c Config, published kube.Inventory) Inventory {
	var inv Inventory
	for _, s := range published.Slices {
		slice := Slice{Slice: s, Cordoned: c.cordons(s.Device, s.ID)}
		if s.Reason == kube.ReasonFault || !s.Healthy && s.Reason == "" { // the latter by an agent that did not say why yet
			slice.Fault = before
		}
		slice.updateHealth()
		inv.slices = append(inv.slices, slice)
	}
	return inv
}

// Slices returns the slices.
func (inv Inventory) Slices() []Slice { return inv.slices }

// Published returns the inventory for the annotation of the node.
func (inv Inventory) Published() kube.Inventory {
	var out kube.Inventory
	for _, s := range inv.slices {
		out.Slices = append(out.Slices, s.Slice)
	}
	return out
}

// AllUnhealthy returns what is published while the node takes no pods, with why as the reason of all slices that have none.
func (inv Inventory) AllUnhealthy(why kube.Reason) kube.Inventory {
	out := inv.Published()
	for i := range out.Slices {
		if s := &out.Slices[i]; s.Healthy {
			s.Healthy, s.Reason = false, why
		}
	}
	return out
}

// Packing returns the slices by which the agent admits. A cordoned slice still takes the pods that were bound to it before.
func (inv Inventory) Packing() []packing.Slice {
	out := nodeview.Slices(inv.Published())
	for i, s := range inv.slices {
		out[i].Healthy = s.Fault == ""
	}
	return out
}

// Tickets returns how many tickets each slice has.
func (inv Inventory) Tickets() []int { return kube.Tickets(inv.Published()) }
