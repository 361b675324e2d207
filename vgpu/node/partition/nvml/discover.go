package nvml

import (
	"fmt"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/vgpu/mig"
)

// hasMediaEngines maps NVML's numbers of the profiles that package mig describes to whether they have the media engines.
var hasMediaEngines = map[int]bool{
	nvml.GPU_INSTANCE_PROFILE_1_SLICE: false, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1: true, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2: false,
	nvml.GPU_INSTANCE_PROFILE_2_SLICE: false, nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1: true, nvml.GPU_INSTANCE_PROFILE_3_SLICE: false,
	nvml.GPU_INSTANCE_PROFILE_4_SLICE: false, nvml.GPU_INSTANCE_PROFILE_7_SLICE: false,
}

// discover reads the profiles and their placements from the driver.
func (d *Device) discover() error {
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
		d.addProfile(profileOf(info, placements, media))
	}
	return d.nameProfiles(infos, memory.Total)
}

// isUnsupported reports whether an answer means that there is no profile of a number. After any other error there may be one, with instances.
func isUnsupported(r nvml.Return) bool {
	return r == nvml.ERROR_NOT_SUPPORTED || r == nvml.ERROR_INVALID_ARGUMENT
}

// profileOf returns a profile without its name.
func profileOf(info nvml.GpuInstanceProfileInfo, placements []nvml.GpuInstancePlacement, media bool) mig.Profile {
	p := mig.Profile{Compute: int(info.SliceCount), Memory: int(placements[0].Size), SMs: int(info.MultiprocessorCount), MiB: int(info.MemorySizeMB), Media: media}
	for _, placement := range placements {
		p.Starts = append(p.Starts, int(placement.Start))
	}
	slices.Sort(p.Starts)
	return p
}

// addProfile adds a profile to the model, whose numbers of slices are the largest of any profile.
func (d *Device) addProfile(p mig.Profile) {
	d.model.Profiles = append(d.model.Profiles, p)
	d.model.Compute = max(d.model.Compute, p.Compute)
	d.model.Memory = max(d.model.Memory, p.Starts[len(p.Starts)-1]+p.Memory)
}

// nameProfiles names the profiles, once the number of memory slices is known.
func (d *Device) nameProfiles(infos []nvml.GpuInstanceProfileInfo, total uint64) error {
	if d.model.Memory < 1 || d.model.Memory > 8 {
		return fmt.Errorf("unsupported number of memory slices: %d", d.model.Memory)
	}
	for i, info := range infos {
		p := &d.model.Profiles[i]
		p.MemoryGB = gigabytes(total, p.Memory, d.model.Memory)
		p.Name = fmt.Sprintf("%dg.%dgb", p.Compute, p.MemoryGB)
		if p.Media {
			p.Name += "+me"
		}
		d.infos[p] = info
	}
	return nil
}

// gigabytes returns the memory in a profile's name: a part of the GPU's, rounded up to whole GiB. Of an H200 with 140.4 GiB, the whole is
// 141 and half is 71.
func gigabytes(total uint64, part, of int) int {
	whole := math.Ceil(float64(total) / (1 << 30))
	return int(math.Round(whole * float64(part) / float64(of)))
}
