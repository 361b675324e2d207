package nvml

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/node/partition"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// readInstance returns the state of a GPU instance and of its compute instances.
func readInstance(handle nvml.GpuInstance, at mig.Instance) (partition.Instance, error) {
	i := partition.Instance{Instance: at}
	err := eachComputeInstance(handle, func(compute nvml.ComputeInstance, size int) error {
		info, r := compute.GetInfo()
		if r != nvml.SUCCESS {
			return callError("read compute instance", r)
		}
		uuid, r := info.Device.GetUUID()
		if r != nvml.SUCCESS {
			return callError("read UUID of compute instance", r)
		}
		if i.ComputeInstances++; size == at.Profile.Compute {
			i.UUID = uuid
		}
		busy, err := hasProcesses(info.Device)
		i.Busy = i.Busy || busy
		return err
	})
	return i, err
}

// eachComputeInstance calls visit for each compute instance of a GPU instance, with its number of compute slices.
func eachComputeInstance(handle nvml.GpuInstance, visit func(compute nvml.ComputeInstance, size int) error) error {
	for n := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, r := handle.GetComputeInstanceProfileInfo(n, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if isUnsupported(r) || r == nvml.SUCCESS && info.InstanceCount == 0 {
			continue
		}
		if r != nvml.SUCCESS {
			return callError("read compute instance profile", r)
		}
		found, r := handle.GetComputeInstances(&info)
		if r != nvml.SUCCESS {
			return callError("list compute instances", r)
		}
		for _, compute := range found {
			if err := visit(compute, int(info.SliceCount)); err != nil {
				return err
			}
		}
	}
	return nil
}

// hasProcesses reports whether processes have CUDA contexts on an instance, directly or through MPS.
func hasProcesses(handle nvml.Device) (bool, error) {
	for _, list := range []func() ([]nvml.ProcessInfo, nvml.Return){
		handle.GetComputeRunningProcesses, handle.GetMPSComputeRunningProcesses,
	} {
		processes, r := list()
		if r != nvml.SUCCESS && r != nvml.ERROR_NOT_SUPPORTED && r != nvml.ERROR_FUNCTION_NOT_FOUND {
			return false, callError("list processes of compute instance", r)
		}
		if len(processes) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// applyToInstance creates or destroys the compute instance of an existing GPU instance, or destroys the GPU instance itself.
func applyToInstance(handle nvml.GpuInstance, s geometry.Step) error {
	switch s.Action {
	case geometry.CreateCompute:
		return createCompute(handle, s.Profile.Compute)
	case geometry.DestroyCompute:
		return destroyCompute(handle, s.Profile.Compute)
	}
	return stepError(handle.Destroy())
}

// createCompute creates a compute instance with a number of compute slices.
func createCompute(handle nvml.GpuInstance, size int) error {
	for n := range nvml.COMPUTE_INSTANCE_PROFILE_COUNT {
		info, r := handle.GetComputeInstanceProfileInfo(n, nvml.COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED)
		if r == nvml.SUCCESS && int(info.SliceCount) == size {
			_, r := handle.CreateComputeInstance(&info)
			return stepError(r)
		}
	}
	return partition.ErrNotFound
}

// destroyCompute destroys the compute instance with a number of compute slices, or returns partition.ErrNotFound.
func destroyCompute(handle nvml.GpuInstance, size int) error {
	err := error(partition.ErrNotFound)
	listErr := eachComputeInstance(handle, func(compute nvml.ComputeInstance, n int) error {
		if n == size {
			err = stepError(compute.Destroy())
		}
		return nil
	})
	if listErr != nil {
		return listErr
	}
	return err
}
