package nvml

import (
	"fmt"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/vgpu/mig"
)

// described are the kinds of instances that package mig knows: NVML's number, and whether they have the media engines.
var described = map[int]bool{
	nvml.GPU_INSTANCE_PROFILE_1_SLICE: false, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1: true, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2: false,
	nvml.GPU_INSTANCE_PROFILE_2_SLICE: false, nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1: true, nvml.GPU_INSTANCE_PROFILE_3_SLICE: false,
	nvml.GPU_INSTANCE_PROFILE_4_SLICE: false, nvml.GPU_INSTANCE_PROFILE_7_SLICE: false,
}

// discover asks for the profiles and their places.
func (d *Device) discover() error {
	memory, r := d.handle.GetMemoryInfo()
	if r != nvml.SUCCESS {
		return failed("memory", r)
	}
	var kinds []nvml.GpuInstanceProfileInfo
	for n := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		kind, r := d.handle.GetGpuInstanceProfileInfo(n)
		if unknown(r) {
			continue
		}
		if r != nvml.SUCCESS {
			return failed(fmt.Sprintf("profile %d", n), r)
		}
		media, ok := described[n]
		if !ok {
			d.other = append(d.other, kind)
			continue
		}
		places, r := d.handle.GetGpuInstancePossiblePlacements(&kind)
		if r != nvml.SUCCESS || len(places) == 0 {
			return failed(fmt.Sprintf("places of profile %d", n), r)
		}
		kinds = append(kinds, kind)
		d.add(profileOf(kind, places, media))
	}
	return d.finish(kinds, memory.Total)
}

// unknown says that there is no profile of that number. After any other error it may be there, with instances.
func unknown(r nvml.Return) bool {
	return r == nvml.ERROR_NOT_SUPPORTED || r == nvml.ERROR_INVALID_ARGUMENT
}

func profileOf(kind nvml.GpuInstanceProfileInfo, places []nvml.GpuInstancePlacement, media bool) mig.Profile {
	p := mig.Profile{Compute: int(kind.SliceCount), Memory: int(places[0].Size), SMs: int(kind.MultiprocessorCount), MiB: int(kind.MemorySizeMB), Media: media}
	for _, place := range places {
		p.Starts = append(p.Starts, int(place.Start))
	}
	slices.Sort(p.Starts)
	return p
}

func (d *Device) add(p mig.Profile) {
	d.model.Profiles = append(d.model.Profiles, p)
	d.model.Compute = max(d.model.Compute, p.Compute)
	d.model.Memory = max(d.model.Memory, p.Starts[len(p.Starts)-1]+p.Memory)
}

// finish names the profiles, when it is known how many slices share the memory.
func (d *Device) finish(kinds []nvml.GpuInstanceProfileInfo, total uint64) error {
	if d.model.Memory < 1 || d.model.Memory > 8 {
		return fmt.Errorf("places on %d memory slices are not understood", d.model.Memory)
	}
	for i, kind := range kinds {
		p := &d.model.Profiles[i]
		p.MemoryGB = gigabytes(total, p.Memory, d.model.Memory)
		p.Name = fmt.Sprintf("%dg.%dgb", p.Compute, p.MemoryGB)
		if p.Media {
			p.Name += "+me"
		}
		d.kinds[p] = kind
	}
	return nil
}

// gigabytes is the memory in a profile's name: its part of the GPU's, which counts as whole gigabytes. An H200 of 140.4 GiB
// counts 141, and half of it 71.
func gigabytes(total uint64, part, of int) int {
	whole := math.Ceil(float64(total) / (1 << 30))
	return int(math.Round(whole * float64(part) / float64(of)))
}
