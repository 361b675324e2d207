package mig

import (
	"errors"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/node/partition"
)

// profiles is NVML's number of each kind: by compute slices, memory slices and media engines.
var profiles = map[[2]int][2]int{ // {plain, with media engines}
	{1, 1}: {nvml.GPU_INSTANCE_PROFILE_1_SLICE, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1},
	{1, 2}: {nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2, -1},
	{2, 2}: {nvml.GPU_INSTANCE_PROFILE_2_SLICE, nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1},
	{3, 4}: {nvml.GPU_INSTANCE_PROFILE_3_SLICE, -1},
	{4, 4}: {nvml.GPU_INSTANCE_PROFILE_4_SLICE, -1},
	{7, 8}: {nvml.GPU_INSTANCE_PROFILE_7_SLICE, -1},
}

func number(p *mig.Profile) int {
	if p.Media {
		return profiles[[2]int{p.Compute, p.Memory}][1]
	}
	return profiles[[2]int{p.Compute, p.Memory}][0]
}

// firstID sets the driver's IDs apart from the numbers: they are not to be relied on.
const firstID = 40

// NVML is the library of a machine with this GPU. Functions that MIG does not need are not there, and panic.
func (g *GPU) NVML() nvml.Interface {
	return &mock.Interface{
		DeviceGetHandleByUUIDFunc: func(uuid string) (nvml.Device, nvml.Return) {
			if uuid != g.uuid {
				return nil, nvml.ERROR_NOT_FOUND
			}
			return g.device(), nvml.SUCCESS
		},
	}
}

func (g *GPU) device() nvml.Device {
	return &mock.Device{
		GetMigModeFunc:    func() (int, int, nvml.Return) { return nvml.DEVICE_MIG_ENABLE, nvml.DEVICE_MIG_ENABLE, nvml.SUCCESS },
		GetMemoryInfoFunc: func() (nvml.Memory, nvml.Return) { return query(g, g.memoryInfo) },
		GetGpuInstanceProfileInfoFunc: func(n int) (nvml.GpuInstanceProfileInfo, nvml.Return) {
			return query(g, func() (nvml.GpuInstanceProfileInfo, nvml.Return) { return g.profileInfo(n) })
		},
		GetGpuInstancePossiblePlacementsFunc: func(info *nvml.GpuInstanceProfileInfo) ([]nvml.GpuInstancePlacement, nvml.Return) {
			return query(g, func() ([]nvml.GpuInstancePlacement, nvml.Return) { return g.placements(info) })
		},
		GetGpuInstancesFunc:                g.gpuInstances,
		CreateGpuInstanceWithPlacementFunc: g.createGPUInstance,
	}
}

// query is a call with an answer of its own, which may go wrong as any.
func query[T any](g *GPU, ask func() (T, nvml.Return)) (is T, r nvml.Return) {
	failed := g.call(func() error {
		is, r = ask()
		return nil
	})
	if failed != nvml.SUCCESS {
		return is, failed
	}
	return is, r
}

func (g *GPU) memoryInfo() (nvml.Memory, nvml.Return) {
	last := g.model.Profiles[len(g.model.Profiles)-1]
	return nvml.Memory{Total: uint64(last.MemoryGB)<<30 - 300<<20}, nvml.SUCCESS // a little less than the name says
}

func (g *GPU) profileInfo(n int) (nvml.GpuInstanceProfileInfo, nvml.Return) {
	for i := range g.model.Profiles {
		if p := &g.model.Profiles[i]; number(p) == n {
			return g.infoOf(p), nvml.SUCCESS
		}
	}
	return nvml.GpuInstanceProfileInfo{}, nvml.ERROR_NOT_SUPPORTED
}

func (g *GPU) infoOf(p *mig.Profile) nvml.GpuInstanceProfileInfo {
	memory, _ := g.memoryInfo()
	return nvml.GpuInstanceProfileInfo{
		Id: uint32(firstID + number(p)), SliceCount: uint32(p.Compute), InstanceCount: uint32(len(p.Starts)), MultiprocessorCount: uint32(p.SMs),
		MemorySizeMB: memory.Total >> 20 * uint64(p.Memory) / uint64(g.model.Memory) * 98 / 100,
	}
}

func (g *GPU) profile(info *nvml.GpuInstanceProfileInfo) *mig.Profile {
	for i := range g.model.Profiles {
		if p := &g.model.Profiles[i]; number(p)+firstID == int(info.Id) {
			return p
		}
	}
	return nil
}

// placements lists all, free or not, in no order.
func (g *GPU) placements(info *nvml.GpuInstanceProfileInfo) (all []nvml.GpuInstancePlacement, _ nvml.Return) {
	p := g.profile(info)
	if p == nil {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	for n := range p.Starts {
		all = append(all, nvml.GpuInstancePlacement{Start: uint32(p.Starts[len(p.Starts)-1-n]), Size: uint32(p.Memory)})
	}
	return all, nvml.SUCCESS
}

func (g *GPU) createGPUInstance(info *nvml.GpuInstanceProfileInfo, at *nvml.GpuInstancePlacement) (made nvml.GpuInstance, r nvml.Return) {
	p := g.profile(info)
	if p == nil || int(at.Size) != p.Memory {
		return nil, nvml.ERROR_INVALID_ARGUMENT
	}
	return made, g.call(func() error {
		i, err := g.create(mig.Instance{Profile: p, Start: int(at.Start)})
		made = g.gpuInstance(i)
		return err
	})
}

func (g *GPU) gpuInstances(info *nvml.GpuInstanceProfileInfo) (found []nvml.GpuInstance, _ nvml.Return) {
	_ = make([]bool, info.InstanceCount)[0] // go-nvml panics as well where the caller gives no count
	return found, g.call(func() error {
		for _, i := range g.instances {
			if i.Profile == g.profile(info) {
				found = append(found, g.gpuInstance(i))
			}
		}
		return nil
	})
}

func (g *GPU) call(act func() error) nvml.Return {
	g.mu.Lock()
	defer g.mu.Unlock()
	return answer(g.faults.pass(act))
}

// answer is what the driver would say.
func answer(err error) nvml.Return {
	for r, is := range map[nvml.Return]error{
		nvml.ERROR_INSUFFICIENT_RESOURCES: partition.ErrNoRoom, nvml.ERROR_IN_USE: partition.ErrInUse,
		nvml.ERROR_NOT_FOUND: partition.ErrNotFound, nvml.ERROR_INVALID_ARGUMENT: errArgument,
	} {
		if errors.Is(err, is) {
			return r
		}
	}
	if err != nil {
		return nvml.ERROR_UNKNOWN
	}
	return nvml.SUCCESS
}
