// Package inventory turns what a machine has into what its node offers: the published inventory, and the slices on which the agent itself
// admits shares. Devices come and go, but what is offered never shrinks while pods are bound.
package inventory

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Config holds the administrator's settings for a node's GPUs.
type Config struct {
	Owned     []string          // UUIDs or indices of the devices that gshare serves; empty: all
	Claimed   []string          // UUIDs or indices of the devices that pods get through resource claims; AllDevices: all
	Cordoned  []string          // UUIDs of devices and slices that take no new pods
	Classes   []share.Isolation // isolation classes that this node can enforce
	Reserve   share.PerMille
	Contexts  share.Bytes // memory of each slice that is kept for contexts and MPS
	MaxShares int
	Store     bool       // pods can share weights in the node's model store
	Swap      *kube.Swap // what slices offer to class swap, if Classes contains it
}

// AllDevices stands for all devices in Config.Claimed.
const AllDevices = "all"

// Inventory holds the slices of a node (whole GPUs or MIG instances), in an order that does not change.
type Inventory struct {
	slices []Slice
}

// Slice is a GPU or MIG instance with its present state.
type Slice struct {
	kube.Slice             // Healthy and Reason follow from the fields below
	Fault      string      // why it cannot be used; empty if it can
	Cordoned   bool        // takes no new pods, except pods that were bound before
	Used       string      // who uses it without a share; empty if nobody does: takes no new pods, not even pods that were bound before
	Index      int         // of the device, in the driver's order
	Claims     bool        // pods get shares of it through resource claims; otherwise through the device plugin and gshare-scheduler
	Kept       share.Bytes // part of its memory beyond MemoryMiB, kept for contexts and MPS
	gpu.Properties
}

// Holders describes who has shares of the node at the time of an Update.
type Holders struct {
	Bound  bool     // pods with shares may be bound to the node, through either interface
	Placed bool     // such pods placed by gshare-scheduler, which get their shares through the device plugin, may be bound
	Claims []string // IDs of the slices on which resource claims have shares
}

func (c Config) owns(d gpu.Device) bool {
	return len(c.Owned) == 0 || slices.Contains(c.Owned, d.UUID) || slices.Contains(c.Owned, strconv.Itoa(d.Index))
}

// slicesOf returns the slices of these GPUs: the whole GPU or, in MIG mode, its instances.
func (c Config) slicesOf(devices []gpu.Device) (found []Slice) {
	for _, d := range devices {
		if !c.owns(d) || d.SMs == 0 { // it does not report its size
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
	offered := max(1, int64(gpu.MemoryForShares(i.Memory, c.Contexts, c.Classes)/share.MiB))
	s := Slice{
		Slice: kube.Slice{
			ID: i.UUID, Device: d.UUID, Model: d.Model, Profile: i.Profile, Room: i.MemorySlices, SMs: i.SMs,
			MemoryMiB: offered, Classes: c.Classes, Reserve: c.Reserve, MaxShares: c.MaxShares, Store: c.Store, Swap: c.Swap,
		},
		Index: d.Index, Fault: cmp.Or(d.Fault, i.Fault), Cordoned: c.cordons(d.UUID, i.UUID), Claims: c.claimsDevice(d.UUID, d.Index), Properties: d.Properties,
		Kept: max(0, i.Memory-share.Bytes(offered)*share.MiB),
	}
	if i.Profile == "" { // instances cannot reach other GPUs
		s.NUMA, s.NVLink = d.NUMA, d.NVLink
	}
	s.updateHealth()
	return s
}

func (c Config) claimsDevice(uuid string, index int) bool {
	return slices.ContainsFunc(c.Claimed, func(name string) bool {
		return name == AllDevices || name == uuid || name == strconv.Itoa(index)
	})
}

// interfaces tells through which interface, resource claims or the device plugin, pods may have shares of slices. The keys are those of
// ownedTogether.
type interfaces struct{ claims, plugin map[string]bool }

// ownedTogether returns a key for what changes its interface as a whole. That is the slice, or the whole GPU if its MIG instances are
// created on demand, since its placements exclude each other.
func (s *Slice) ownedTogether() string {
	if s.Room != 0 {
		return s.Device
	}
	return s.ID
}

// interfacesOf returns through which interface pods may have shares of the slices in an inventory and of those found now.
func (inv Inventory) interfacesOf(found []Slice, h Holders) interfaces {
	of := interfaces{claims: map[string]bool{}, plugin: map[string]bool{}}
	for _, s := range slices.Concat(inv.slices, found) {
		if slices.Contains(h.Claims, s.ID) {
			of.claims[s.ownedTogether()] = true
		}
	}
	for _, s := range inv.slices {
		if h.Placed && !s.Claims {
			of.plugin[s.ownedTogether()] = true
		}
	}
	return of
}

// keepInterface leaves a slice to the interface through which pods may have shares of it, until these are gone. Until then, a slice that is
// to change its interface takes no new pods.
func (s *Slice) keepInterface(of interfaces) {
	wanted := s.Claims
	switch key := s.ownedTogether(); {
	case of.claims[key]:
		s.Claims = true
	case of.plugin[key]:
		s.Claims = false
	}
	if s.Claims != wanted {
		s.Cordoned = true
		s.updateHealth()
	}
}

func (c Config) cordons(device, slice string) bool {
	return slices.Contains(c.Cordoned, device) || slices.Contains(c.Cordoned, slice)
}

// updateHealth sets whether the slice takes new pods and, if not, the most urgent reason.
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

// Update returns the inventory for the GPUs that are found now. Slices keep their positions, by which device IDs are numbered. A slice that is
// gone stays in the inventory as unhealthy while pods are bound, or while its GPU does not list all MIG instances. A slice that the
// configuration gives to the other interface changes once nobody has shares of it.
func (inv Inventory) Update(c Config, devices []gpu.Device, holders Holders) Inventory {
	found, bound := c.slicesOf(devices), holders.Bound
	owners := inv.interfacesOf(found, holders)
	now := map[string]bool{} // whether what changes its interface together now belongs to claims
	for i := range found {
		found[i].keepInterface(owners)
		now[found[i].ownedTogether()] = found[i].Claims
	}
	var next []Slice
	for _, old := range inv.slices {
		i := slices.IndexFunc(found, func(s Slice) bool { return s.ID == old.ID })
		fault := c.incompleteReason(devices, old.Device)
		if fault == "" && bound {
			fault = missingFault(old)
		}
		switch {
		case i >= 0 && bound:
			next = append(next, keepDeviceIDs(found[i], old))
		case i >= 0:
			next = append(next, found[i])
		case fault != "" && !conflictsWith(found, old):
			old.Fault = fault
			if claims, found := now[old.ownedTogether()]; found { // otherwise the slice would keep its GPU from changing, or change it back later
				old.Claims = claims
			}
			old.updateHealth()
			next = append(next, old)
		}
		if i >= 0 {
			found = slices.Delete(found, i, i+1)
		}
	}
	return Inventory{append(next, found...)}
}

// missingFault returns the fault text of a slice that the driver no longer lists.
func missingFault(old Slice) string {
	if old.Room != 0 { // it was to be created on demand: the driver never listed it
		return withdrawn
	}
	return gone
}

// keepDeviceIDs returns the slice now with at least as many device IDs (device IDs that the kubelet may allocate) as old had.
func keepDeviceIDs(now, old Slice) Slice {
	now.MaxShares = max(now.MaxShares, old.MaxShares)
	return now
}

// incompleteReason returns why a GPU does not list all of its MIG instances; empty if it does.
func (c Config) incompleteReason(devices []gpu.Device, uuid string) string {
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

// conflictsWith reports whether an old slice cannot exist beside those found: a GPU is either one slice or divided into MIG instances.
func conflictsWith(found []Slice, old Slice) bool {
	return slices.ContainsFunc(found, func(s Slice) bool { return s.Device == old.Device && (s.Profile == "") != (old.Profile == "") })
}

// Restore returns the inventory from what the node published last. Faults remain until the next Update; cordons are those of the
// configuration.
func Restore(c Config, published kube.Inventory) Inventory {
	var inv Inventory
	for _, s := range published.Slices {
		inv.slices = append(inv.slices, c.restored(s))
	}
	return inv
}

func (c Config) restored(s kube.Slice) Slice {
	slice := Slice{Slice: s, Cordoned: c.cordons(s.Device, s.ID)}
	if s.Reason == kube.ReasonFault || !s.Healthy && s.Reason == "" { // an earlier agent published no reason
		slice.Fault = before
	}
	slice.updateHealth()
	return slice
}

// Slices returns the slices (whole GPUs or MIG instances) in the inventory's order.
func (inv Inventory) Slices() []Slice { return inv.slices }

// OfClaims returns the slices of which pods get shares through resource claims.
func (inv Inventory) OfClaims() (all []Slice) {
	for _, s := range inv.slices {
		if s.Claims {
			all = append(all, s)
		}
	}
	return all
}

// Published returns, in the form of the Node annotation, the slices of which pods get shares through the device plugin.
func (inv Inventory) Published() kube.Inventory {
	return inv.inForm(func(s Slice) bool { return !s.Claims })
}

func (inv Inventory) inForm(include func(Slice) bool) (out kube.Inventory) {
	for _, s := range inv.slices {
		if include(s) {
			out.Slices = append(out.Slices, s.Slice)
		}
	}
	return out
}

// AllUnhealthy returns the inventory to publish while the node takes no pods: no slice is healthy, and those that would be have the reason
// why.
func (inv Inventory) AllUnhealthy(why kube.Reason) kube.Inventory {
	out := inv.Published()
	for i := range out.Slices {
		if s := &out.Slices[i]; s.Healthy {
			s.Healthy, s.Reason = false, why
		}
	}
	return out
}

// Packing returns the slices in the form in which the agent uses them to admit bound pods. Cordoned slices count as healthy, since they
// still take pods that were bound before. The rules are those of the configuration.
func (inv Inventory) Packing(rules kube.Rules) []packing.Slice {
	all := inv.inForm(func(Slice) bool { return true })
	all.Rules = &rules
	out := nodeview.Slices(all)
	for i, s := range inv.slices {
		out[i].Healthy = s.Fault == ""
	}
	return out
}

// Kept returns how much of the memory of each slice, by ID, is not offered.
func (inv Inventory) Kept() map[string]share.Bytes {
	kept := map[string]share.Bytes{}
	for _, s := range inv.slices {
		kept[s.ID] = s.Kept
	}
	return kept
}

// DeviceIDs returns the number of device IDs (device IDs that the kubelet may allocate) of each slice.
func (inv Inventory) DeviceIDs() []int { return kube.DeviceIDs(inv.Published()) }

// WithUsed returns the inventory with the given slices marked as used without a share, so that they take no new pods. used maps slice IDs to
// descriptions of the users.
func (inv Inventory) WithUsed(used map[string]string) Inventory {
	marked := slices.Clone(inv.slices)
	for i := range marked {
		s := &marked[i]
		s.Used = used[s.ID]
		s.updateHealth()
	}
	return Inventory{marked}
}

// UsedAndOverlapping adds to the used slices the MIG placements that overlap with them: their instances cannot be created meanwhile.
func (inv Inventory) UsedAndOverlapping(used map[string]string) map[string]string {
	all := maps.Clone(used)
	for _, s := range inv.slices {
		for _, o := range inv.slices {
			if used[s.ID] != "" && all[o.ID] == "" && o.Device == s.Device && o.Room&s.Room != 0 {
				all[o.ID] = used[s.ID]
			}
		}
	}
	return all
}

// SlicesOf returns the IDs of the slices on a device that another device plugin has allocated under the given resource and device ID.
// NVIDIA's plugin names devices by UUID or, if configured so, by index, and appends ::n to replicas.
func (inv Inventory) SlicesOf(resource, device string) (ids []string) {
	name, _, _ := strings.Cut(device, "::")
	gpu, _, _ := strings.Cut(name, ":") // 0:1 is an instance of GPU 0
	byIndex := strings.HasPrefix(resource, "nvidia.com/")
	for _, s := range inv.slices {
		if name == s.ID || name == s.Device || byIndex && gpu == strconv.Itoa(s.Index) {
			ids = append(ids, s.ID)
		}
	}
	return ids
}
