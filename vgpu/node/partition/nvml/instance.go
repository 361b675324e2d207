package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
	"github.com/gshare-dev/gshare/vgpu/node/partition"
)

// read tells what a GPU instance has.
func read(handle nvml.GpuInstance, at mig.Instance) (partition.Instance, error) {
	i := partition.Instance{Instance: at}
	err := eachCompute(handle, func(compute nvml.ComputeInstance, size int) error {
		info, r := compute.GetInfo()
		if r != nvml.SUCCESS {
			return failed("read compute instance", r)
		}
		uuid, r := info.Device.GetUUID()
		if r != nvml.SUCCESS {
			return failed("UUID of compute instance", r)
		}
		if i.Compute++; size == at.Profile.Compute {
			i.UUID = uuid
		}
		busy, err := runs(info.Device)
		i.Busy = i.Busy || busy
		return err
	})
	return i, err
}

// eachCompute visits the compute instances of a GPU instance.
func eachCompute(handle nvml.GpuInstance, visit func(compute nvml.ComputeInstance, size int) error) error {
	for n := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		kind, r := handle.GetComputeInstanceProfileInfo(n, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if unknown(r) || r == nvml.SUCCESS && kind.InstanceCount == 0 {
			continue
		}
		if r != nvml.SUCCESS {
			return failed("profile of compute instances", r)
		}
		found, r := handle.GetComputeInstances(&kind)
		if r != nvml.SUCCESS {
			return failed("list compute instances", r)
		}
		for _, compute := range found {
			if err := visit(compute, int(kind.SliceCount)); err != nil {
				return err
			}
		}
	}
	return nil
}

// runs says that processes have contexts on an instance, of their own or through MPS.
func runs(handle nvml.Device) (bool, error) {
	for _, list := range []func() ([]nvml.ProcessInfo, nvml.Return){
		handle.GetComputeRunningProcesses, handle.GetMPSComputeRunningProcesses,
	} {
		processes, r := list()
		if r != nvml.SUCCESS && r != nvml.ERROR_NOT_SUPPORTED && r != nvml.ERROR_FUNCTION_NOT_FOUND {
			return false, failed("processes of compute instance", r)
		}
		if len(processes) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// change takes a step on a GPU instance that exists.
func change(handle nvml.GpuInstance, s geometry.Step) error {
	switch s.Action {
	case geometry.CreateCompute:
		return createCompute(handle, s.Profile.Compute)
	case geometry.DestroyCompute:
		return destroyCompute(handle, s.Profile.Compute)
	}
	return answer(handle.Destroy())
}

func createCompute(handle nvml.GpuInstance, size int) error {
	for n := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		kind, r := handle.GetComputeInstanceProfileInfo(n, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if r == nvml.SUCCESS && int(kind.SliceCount) == size {
			_, r := handle.CreateComputeInstance(&kind)
			return answer(r)
		}
	}
	return partition.ErrNotFound
}

func destroyCompute(handle nvml.GpuInstance, size int) error {
	err := error(partition.ErrNotFound)
	all := eachCompute(handle, func(compute nvml.ComputeInstance, has int) error {
		if has == size {
			err = answer(compute.Destroy())
		}
		return nil
	})
	if all != nil {
		return all
	}
	return err
}
