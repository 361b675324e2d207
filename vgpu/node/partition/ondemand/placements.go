package ondemand

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/partition"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// setInstances replaces the instances of a listed device by those of others and the placements, and returns the GPU's contents. If they are
// unknown, the device gets a fault, and is not offered as a whole.
func (d *device) setInstances(listed *gpu.Device) contents {
	original := *listed
	listed.MIG, listed.Instances = true, nil
	c, err := d.list()
	if err == nil && !original.MIG {
		err = partition.ErrNoMIG
	}
	if err != nil {
		listed.Fault = cmp.Or(listed.Fault, err.Error())
		return contents{}
	}
	listed.Instances = append(c.foreignOf(original.Instances), d.freePlacements(c, listed.Memory, c.faults(original))...)
	return c
}

// freePlacements returns the placements that do not overlap instances of others: those that are offered, and those that containers use. The
// fault of an instance is that of its placement, also if it is idle.
func (d *device) freePlacements(c contents, total share.Bytes, faults map[string]string) (free []gpu.Instance) {
	uuids := map[mig.Instance]string{}
	for _, i := range c.created {
		uuids[i.Instance] = i.UUID
	}
	for _, at := range d.placements() {
		id := placementID(d.UUID, at)
		if (d.isOffered(at.Profile) || slices.Contains(d.used, id)) && memorySlices(at)&c.foreignSlices() == 0 {
			free = append(free, gpu.Instance{
				UUID: id, Profile: at.Profile.Name, SMs: at.Profile.SMs, Memory: memoryOf(at.Profile, total, d.model),
				MemorySlices: memorySlices(at), Fault: faults[uuids[at]],
			})
		}
	}
	return free
}

// faults returns the faults of the instances of a listed device by UUID. An instance that gshare created and that is not listed could not be
// read.
func (c contents) faults(listed gpu.Device) map[string]string {
	faults := map[string]string{}
	for _, i := range c.created {
		faults[i.UUID] = listed.Incomplete
	}
	for _, i := range listed.Instances {
		faults[i.UUID] = i.Fault
	}
	delete(faults, "") // of placements without an instance
	return faults
}

// foreignSlices returns the memory slices that instances of others occupy.
func (c contents) foreignSlices() (all uint8) {
	for _, i := range c.foreign {
		all |= memorySlices(i.Instance)
	}
	return all
}

// foreignOf returns those of the listed instances that others created.
func (c contents) foreignOf(listed []gpu.Instance) []gpu.Instance {
	return slices.DeleteFunc(slices.Clone(listed), func(i gpu.Instance) bool {
		return !slices.ContainsFunc(c.foreign, func(f partition.Instance) bool { return f.UUID == i.UUID })
	})
}

// placementID returns the permanent name of a placement: compute slices, memory slices and start, after the prefix of its GPU.
func placementID(uuid string, at mig.Instance) string {
	return fmt.Sprintf("%sc%dm%d.%d", idPrefix(uuid), at.Profile.Compute, at.Profile.Memory, at.Start)
}

// idPrefix returns the prefix of the IDs of a GPU's placements.
func idPrefix(uuid string) string { return strings.TrimPrefix(uuid, "GPU-") + "." }

// placements returns the placements of an open GPU, without those whose number of SMs the driver does not report, in the order in which
// package mig chooses between equal ones.
func (d *device) placements() (all []mig.Instance) {
	for i := range d.model.Profiles {
		p := &d.model.Profiles[i]
		if p.Media || p.SMs == 0 {
			continue
		}
		for _, start := range p.Starts {
			all = append(all, mig.Instance{Profile: p, Start: start})
		}
	}
	return all
}

// placement returns the placement with an ID on an open GPU. It need not be offered: a container may use it from earlier.
func (d *device) placement(id string) (at mig.Instance, ok bool) {
	for _, at := range d.placements() {
		if placementID(d.UUID, at) == id {
			return at, true
		}
	}
	return at, false
}

// isOffered reports whether the placements of a profile are offered to containers.
func (d *device) isOffered(p *mig.Profile) bool {
	return len(d.Profiles) == 0 || slices.Contains(d.Profiles, p.Name)
}

// MissingProfiles returns the profiles that the configuration offers on an open GPU, but of which the GPU has no placement without media
// engines.
func (s *Source) MissingProfiles(uuid string) (profiles []string) {
	d := s.snapshot(uuid)
	if d == nil || d.model == nil {
		return nil
	}
	all := d.placements()
	return slices.DeleteFunc(slices.Clone(d.Profiles), func(name string) bool {
		return slices.ContainsFunc(all, func(at mig.Instance) bool { return at.Profile.Name == name })
	})
}

// WithdrawnPlacements returns the placements that containers use and that are not offered to new ones any more.
func (s *Source) WithdrawnPlacements() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.used), func(id string) bool {
		d := s.deviceOf(id)
		if d == nil || d.model == nil {
			return true
		}
		at, ok := d.placement(id)
		return !ok || d.isOffered(at.Profile)
	})
}

// memorySlices returns the memory slices of an instance as a bit set.
func memorySlices(i mig.Instance) uint8 { return uint8(mig.Layout{}.With(i).Used) }

// memoryOf returns the memory of an instance: what the driver reports, or else its part of the GPU's total.
func memoryOf(p *mig.Profile, total share.Bytes, m *mig.Model) share.Bytes {
	if p.MiB > 0 {
		return share.Bytes(p.MiB) * share.MiB
	}
	return total * share.Bytes(p.Memory) / share.Bytes(m.Memory)
}
