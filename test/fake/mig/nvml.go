package mig

import (
	"errors"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/gshare-dev/gshare/node/partition"
	"github.com/gshare-dev/gshare/vgpu/mig"
)

// profileNumbers maps the compute and memory slices of MIG profiles to NVML's profile constants, without and with media engines.
var profileNumbers = map[[2]int][2]int{ // {plain, with media engines}
	{1, 1}: {nvml.GPU_INSTANCE_PROFILE_1_SLICE, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1},
	{1, 2}: {nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2, -1},
	{2, 2}: {nvml.GPU_INSTANCE_PROFILE_2_SLICE, nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1},
	{3, 4}: {nvml.GPU_INSTANCE_PROFILE_3_SLICE, -1},
	{4, 4}: {nvml.GPU_INSTANCE_PROFILE_4_SLICE, -1},
	{7, 8}: {nvml.GPU_INSTANCE_PROFILE_7_SLICE, -1},
}

// profileNumber returns NVML's constant for a MIG profile.
func profileNumber(p *mig.Profile) int {
	if p.Media {
		return profileNumbers[[2]int{p.Compute, p.Memory}][1]
	}
	return profileNumbers[[2]int{p.Compute, p.Memory}][0]
}

// profileIDOffset is the difference between a profile's ID and its NVML constant, so that tests reveal code that confuses the
// two.
const profileIDOffset = 40

// NVML returns the NVML library of a machine with this GPU. Functions that MIG does not need panic.
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

// query executes a driver call that returns a value, or the fault that is injected for it.
func query[T any](g *GPU, get func() (T, nvml.Return)) (value T, r nvml.Return) {
	failed := g.call(func() error {
		value, r = get()
		return nil
	})
	if failed != nvml.SUCCESS {
		return value, failed
	}
	return value, r
}

func (g *GPU) memoryInfo() (nvml.Memory, nvml.Return) {
	last := g.model.Profiles[len(g.model.Profiles)-1]
	return nvml.Memory{Total: uint64(last.MemoryGB)<<30 - 300<<20}, nvml.SUCCESS // a little less than the name says
}

func (g *GPU) profileInfo(n int) (nvml.GpuInstanceProfileInfo, nvml.Return) {
	for i := range g.model.Profiles {
		if p := &g.model.Profiles[i]; profileNumber(p) == n {
			return g.infoOf(p), nvml.SUCCESS
		}
	}
	return nvml.GpuInstanceProfileInfo{}, nvml.ERROR_NOT_SUPPORTED
}

func (g *GPU) infoOf(p *mig.Profile) nvml.GpuInstanceProfileInfo {
	memory, _ := g.memoryInfo()
	return nvml.GpuInstanceProfileInfo{
		Id: uint32(profileIDOffset + profileNumber(p)), SliceCount: uint32(p.Compute), InstanceCount: uint32(len(p.Starts)), MultiprocessorCount: uint32(p.SMs),
		MemorySizeMB: memory.Total >> 20 * uint64(p.Memory) / uint64(g.model.Memory) * 98 / 100,
	}
}

func (g *GPU) profile(info *nvml.GpuInstanceProfileInfo) *mig.Profile {
	for i := range g.model.Profiles {
		if p := &g.model.Profiles[i]; profileNumber(p)+profileIDOffset == int(info.Id) {
			return p
		}
	}
	return nil
}

// placements returns all placements of a profile, including occupied ones, in descending order.
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
	_ = make([]bool, info.InstanceCount)[0] // go-nvml also panics if the caller passes no count
	return found, g.call(func() error {
		for _, i := range g.instances {
			if i.Profile == g.profile(info) {
				found = append(found, g.gpuInstance(i))
			}
		}
		return nil
	})
}

// call executes a driver call, or the fault that is injected for it, and returns NVML's return code.
func (g *GPU) call(act func() error) nvml.Return {
	g.mu.Lock()
	defer g.mu.Unlock()
	return returnOf(g.faults.call(act))
}

// returnOf returns NVML's return code for an error.
func returnOf(err error) nvml.Return {
	for r, is := range map[nvml.Return]error{
		nvml.ERROR_INSUFFICIENT_RESOURCES: partition.ErrInsufficientResources, nvml.ERROR_IN_USE: partition.ErrInUse,
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

func (g *GPU) gpuInstance(i *instance) nvml.GpuInstance {
	return &mock.GpuInstance{
		GetInfoFunc: func() (nvml.GpuInstanceInfo, nvml.Return) {
			return nvml.GpuInstanceInfo{
				Id: uint32(i.id), ProfileId: g.infoOf(i.Profile).Id, Placement: nvml.GpuInstancePlacement{Start: uint32(i.Start), Size: uint32(i.Profile.Memory)},
			}, nvml.SUCCESS
		},
		DestroyFunc: func() nvml.Return { return g.call(func() error { return g.destroy(i) }) },
		GetComputeInstanceProfileInfoFunc: func(n, engines int) (nvml.ComputeInstanceProfileInfo, nvml.Return) {
			return query(g, func() (nvml.ComputeInstanceProfileInfo, nvml.Return) { return computeInfo(i, n) })
		},
		GetComputeInstancesFunc: func(info *nvml.ComputeInstanceProfileInfo) ([]nvml.ComputeInstance, nvml.Return) {
			return g.computeInstances(i, info)
		},
		CreateComputeInstanceFunc: func(info *nvml.ComputeInstanceProfileInfo) (made nvml.ComputeInstance, r nvml.Return) {
			return made, g.call(func() error {
				c, err := g.createCompute(i, int(info.SliceCount))
				made = g.computeInstance(i, c)
				return err
			})
		},
	}
}

// computeSizes maps NVML's profiles of compute instances to their numbers of compute slices.
var computeSizes = map[int]int{
	nvml.COMPUTE_INSTANCE_PROFILE_1_SLICE: 1, nvml.COMPUTE_INSTANCE_PROFILE_2_SLICE: 2, nvml.COMPUTE_INSTANCE_PROFILE_3_SLICE: 3,
	nvml.COMPUTE_INSTANCE_PROFILE_4_SLICE: 4, nvml.COMPUTE_INSTANCE_PROFILE_7_SLICE: 7,
}

func computeInfo(i *instance, n int) (nvml.ComputeInstanceProfileInfo, nvml.Return) {
	size := computeSizes[n]
	if size == 0 || size > i.Profile.Compute {
		return nvml.ComputeInstanceProfileInfo{}, nvml.ERROR_NOT_SUPPORTED
	}
	return nvml.ComputeInstanceProfileInfo{Id: uint32(n), SliceCount: uint32(size), InstanceCount: uint32(i.Profile.Compute / size)}, nvml.SUCCESS
}

func (g *GPU) computeInstances(i *instance, info *nvml.ComputeInstanceProfileInfo) (found []nvml.ComputeInstance, _ nvml.Return) {
	_ = make([]bool, info.InstanceCount)[0] // as for GPU instances
	return found, g.call(func() error {
		for _, c := range i.compute {
			if c.slices == int(info.SliceCount) {
				found = append(found, g.computeInstance(i, c))
			}
		}
		return nil
	})
}

func (g *GPU) computeInstance(i *instance, c *compute) nvml.ComputeInstance {
	return &mock.ComputeInstance{
		DestroyFunc: func() nvml.Return { return g.call(func() error { return g.destroyCompute(i, c) }) },
		GetInfoFunc: func() (nvml.ComputeInstanceInfo, nvml.Return) {
			return nvml.ComputeInstanceInfo{Device: g.migDevice(i, c), Id: uint32(c.id)}, nvml.SUCCESS
		},
	}
}

func (g *GPU) migDevice(i *instance, c *compute) nvml.Device {
	return &mock.Device{
		GetUUIDFunc: func() (string, nvml.Return) { return g.uuidOf(i, c), nvml.SUCCESS },
		GetComputeRunningProcessesFunc: func() (running []nvml.ProcessInfo, _ nvml.Return) {
			return running, g.call(func() error {
				running = make([]nvml.ProcessInfo, c.processes)
				return nil
			})
		},
		GetMPSComputeRunningProcessesFunc: func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED },
		GetGraphicsRunningProcessesFunc:   func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED },
	}
}
