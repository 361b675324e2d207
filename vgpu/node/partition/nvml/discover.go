package nvml

import (
	"fmt"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/vgpu/mig"
)

// hasMediaEngines maps the NVML profile IDs that package mig describes to whether these profiles have the media engines.
var hasMediaEngines = map[int]bool{
	nvml.GPU_INSTANCE_PROFILE_1_SLICE: false, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1: true, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2: false,
	nvml.GPU_INSTANCE_PROFILE_2_SLICE: false, nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1: true, nvml.GPU_INSTANCE_PROFILE_3_SLICE: false,
	nvml.GPU_INSTANCE_PROFILE_4_SLICE: false, nvml.GPU_INSTANCE_PROFILE_7_SLICE: false,
}

// discoverProfiles reads the MIG profiles and their possible placements from the driver.
func (d *Device) discoverProfiles() error {
	memory, r := d.handle.GetMemoryInfo()
	if r != nvml.SUCCESS {
		return callError("read memory", r)
	}
	var infos []nvml.GpuInstanceProfileInfo
	for n := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, r := d.handle.GetGpuInstanceProfileInfo(n)
		if isUnsupported(r) {
			continue
		}
		if r != nvml.SUCCESS {
			return callError(fmt.Sprintf("read MIG profile %d", n), r)
		}
		media, ok := hasMediaEngines[n]
		if !ok {
			d.otherProfiles = append(d.otherProfiles, info)
			continue
		}
		placements, r := d.handle.GetGpuInstancePossiblePlacements(&info)
		if r != nvml.SUCCESS || len(placements) == 0 {
			return callError(fmt.Sprintf("list placements of MIG profile %d", n), r)
		}
		infos = append(infos, info)
		d.addProfile(newProfile(info, placements, media))
	}
	return d.nameProfiles(infos, memory.Total)
}

// isUnsupported reports whether a call failed because the GPU has no profile with the given ID. After any other error there may be one,
// with instances.
func isUnsupported(r nvml.Return) bool {
	return r == nvml.ERROR_NOT_SUPPORTED || r == nvml.ERROR_INVALID_ARGUMENT
}

// newProfile converts a profile from NVML, without its name.
func newProfile(info nvml.GpuInstanceProfileInfo, placements []nvml.GpuInstancePlacement, media bool) mig.Profile {
	p := mig.Profile{Compute: int(info.SliceCount), Memory: int(placements[0].Size), SMs: int(info.MultiprocessorCount), MiB: int(info.MemorySizeMB), Media: media}
	for _, placement := range placements {
		p.Starts = append(p.Starts, int(placement.Start))
	}
	slices.Sort(p.Starts)
	return p
}

// addProfile adds a profile to the model, and raises the model's numbers of compute and memory slices to what the profile needs.
func (d *Device) addProfile(p mig.Profile) {
	d.model.Profiles = append(d.model.Profiles, p)
	d.model.Compute = max(d.model.Compute, p.Compute)
	d.model.Memory = max(d.model.Memory, p.Starts[len(p.Starts)-1]+p.Memory)
}

// nameProfiles sets the names of all profiles, such as 1g.18gb, which depend on the number of memory slices of the GPU.
func (d *Device) nameProfiles(infos []nvml.GpuInstanceProfileInfo, total uint64) error {
	if d.model.Memory < 1 || d.model.Memory > 8 {
		return fmt.Errorf("unsupported number of memory slices: %d", d.model.Memory)
	}
	for i, info := range infos {
		p := &d.model.Profiles[i]
		p.MemoryGB = profileGigabytes(total, p.Memory, d.model.Memory)
		p.Name = fmt.Sprintf("%dg.%dgb", p.Compute, p.MemoryGB)
		if p.Media {
			p.Name += "+me"
		}
		d.infos[p] = info
	}
	return nil
}

// profileGigabytes returns the memory in the name of a profile with part of the GPU's memory slices. The GPU's memory is rounded up to
// whole GiB first: an H200 with 140.4 GiB has 141, and half of it is 71.
func profileGigabytes(total uint64, part, of int) int {
	whole := math.Ceil(float64(total) / (1 << 30))
	return int(math.Round(whole * float64(part) / float64(of)))
}
