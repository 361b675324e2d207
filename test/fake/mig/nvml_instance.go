package mig

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

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
	}
}
