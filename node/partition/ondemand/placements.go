package ondemand

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/partition"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// offerPlacements replaces the MIG instances of a listed GPU by the instances that others created and the placements that are free, and
// returns the existing instances. If they cannot be listed, the GPU gets a fault.
func (d *device) offerPlacements(listed *gpu.Device) gpuInstances {
	original := *listed
	listed.MIG, listed.Instances = true, nil
	c, err := d.listInstances()
	if err == nil && !original.MIG {
		err = partition.ErrNoMIG
	}
	if err != nil {
		listed.Fault = cmp.Or(listed.Fault, err.Error())
		return gpuInstances{}
	}
	listed.Instances = append(c.foreignAmong(original.Instances), d.freePlacements(c, listed.Memory, c.faults(original))...)
	return c
}

// freePlacements returns the placements that do not overlap with instances of others and that are offered, or used by a container. A
// placement has the fault of its instance, even if the instance is idle.
func (d *device) freePlacements(c gpuInstances, total share.Bytes, faults map[string]string) (free []gpu.Instance) {
	uuids := map[mig.Instance]string{}
	for _, i := range c.created {
		uuids[i.Instance] = i.UUID
	}
	for _, at := range d.placements() {
		id := placementID(d.UUID, at)
		if (d.isOffered(at.Profile) || slices.Contains(d.used, id)) && memorySlices(at)&c.foreignMemorySlices() == 0 {
			free = append(free, gpu.Instance{
				UUID: id, Profile: at.Profile.Name, SMs: at.Profile.SMs, Memory: instanceMemory(at.Profile, total, d.model),
				MemorySlices: memorySlices(at), Fault: faults[uuids[at]],
			})
		}
	}
	return free
}

// faults returns the faults of a GPU's MIG instances by UUID. An instance that gshare created and that is not listed has the error for
// which the list is incomplete.
func (c gpuInstances) faults(listed gpu.Device) map[string]string {
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

// foreignMemorySlices returns the memory slices that instances created by others occupy, as a bit set.
func (c gpuInstances) foreignMemorySlices() (all uint8) {
	for _, i := range c.foreign {
		all |= memorySlices(i.Instance)
	}
	return all
}

// foreignAmong returns the listed instances that others created.
func (c gpuInstances) foreignAmong(listed []gpu.Instance) []gpu.Instance {
	return slices.DeleteFunc(slices.Clone(listed), func(i gpu.Instance) bool {
		return !slices.ContainsFunc(c.foreign, func(f partition.Instance) bool { return f.UUID == i.UUID })
	})
}

// placementID returns the ID of a placement, which never changes: the GPU, then compute slices, memory slices and the first memory slice.
func placementID(uuid string, at mig.Instance) string {
	return fmt.Sprintf("%sc%dm%d.%d", placementIDPrefix(uuid), at.Profile.Compute, at.Profile.Memory, at.Start)
}

// placementIDPrefix returns the common prefix of the IDs of a GPU's MIG placements.
func placementIDPrefix(uuid string) string { return strings.TrimPrefix(uuid, "GPU-") + "." }

// placements returns all placements on an open GPU in the order in which package mig chooses between equal ones. It omits profiles with
// media engines, and those whose number of SMs the driver does not report.
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

// placementByID returns the MIG placement with an ID on an open GPU, even if it is not offered: a container may still use a placement that
// was offered earlier.
func (d *device) placementByID(id string) (at mig.Instance, ok bool) {
	for _, at := range d.placements() {
		if placementID(d.UUID, at) == id {
			return at, true
		}
	}
	return at, false
}

// isOffered reports whether containers may use placements of a profile, according to the configuration.
func (d *device) isOffered(p *mig.Profile) bool {
	return len(d.Profiles) == 0 || slices.Contains(d.Profiles, p.Name)
}

// MissingProfiles returns the configured profiles for which an open GPU has no placement, not counting placements with media engines.
func (s *Source) MissingProfiles(uuid string) (profiles []string) {
	d := s.snapshotOf(uuid)
	if d == nil || d.model == nil {
		return nil
	}
	all := d.placements()
	return slices.DeleteFunc(slices.Clone(d.Profiles), func(name string) bool {
		return slices.ContainsFunc(all, func(at mig.Instance) bool { return at.Profile.Name == name })
	})
}

// WithdrawnPlacements returns the placements that containers still use but that are no longer offered to new ones.
func (s *Source) WithdrawnPlacements() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.used), func(id string) bool {
		d := s.gpuOfPlacement(id)
		if d == nil || d.model == nil {
			return true
		}
		at, ok := d.placementByID(id)
		return !ok || d.isOffered(at.Profile)
	})
}

// memorySlices returns the memory slices that an instance occupies, as a bit set.
func memorySlices(i mig.Instance) uint8 { return uint8(mig.Layout{}.With(i).Used) }

// instanceMemory returns the memory of an instance: what the driver reports for its profile, or else its fraction of the GPU's memory.
func instanceMemory(p *mig.Profile, total share.Bytes, m *mig.Model) share.Bytes {
	if p.MiB > 0 {
		return share.Bytes(p.MiB) * share.MiB
	}
	return total * share.Bytes(p.Memory) / share.Bytes(m.Memory)
}
