// Package nvml lists the GPUs of this machine through NVIDIA's management library.
package nvml

import (
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Source asks the library; a machine without it or without a driver has no GPU.
type Source struct{}

// Devices implements gpu.Source. GPUs in MIG mode are left out: their instances are slices of another kind.
func (Source) Devices() (devices []gpu.Device, err error) {
	if r := nvml.Init(); r != nvml.SUCCESS {
		return nil, fmt.Errorf("%w: NVML says %s", gpu.ErrNone, nvml.ErrorString(r))
	}
	defer nvml.Shutdown()
	count, r := nvml.DeviceGetCount()
	if r != nvml.SUCCESS {
		return nil, failed("count devices", r)
	}
	for i := range count {
		handle, r := nvml.DeviceGetHandleByIndex(i)
		if r != nvml.SUCCESS {
			return nil, failed(fmt.Sprintf("device %d", i), r)
		}
		if mode, _, r := handle.GetMigMode(); r == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE {
			continue
		}
		device, err := read(handle)
		if err != nil {
			return nil, fmt.Errorf("device %d: %w", i, err)
		}
		devices = append(devices, device)
	}
	if len(devices) == 0 {
		return nil, gpu.ErrNone
	}
	return devices, nil
}

func read(handle nvml.Device) (gpu.Device, error) {
	uuid, r := handle.GetUUID()
	if r != nvml.SUCCESS {
		return gpu.Device{}, failed("UUID", r)
	}
	name, r := handle.GetName()
	if r != nvml.SUCCESS {
		return gpu.Device{}, failed("name", r)
	}
	memory, r := handle.GetMemoryInfo_v2()
	if r != nvml.SUCCESS {
		return gpu.Device{}, failed("memory", r)
	}
	cores, r := handle.GetNumGpuCores()
	if r != nvml.SUCCESS {
		return gpu.Device{}, failed("cores", r)
	}
	major, minor, r := handle.GetCudaComputeCapability()
	if r != nvml.SUCCESS {
		return gpu.Device{}, failed("compute capability", r)
	}
	device := gpu.Device{
		UUID: uuid, Model: modelOf(name), SMs: cores / coresOfSM(major, minor),
		Memory: share.Bytes(memory.Total - memory.Reserved),
	}
	return device, device.Validate()
}

func failed(what string, r nvml.Return) error {
	return fmt.Errorf("%s: NVML says %s", what, nvml.ErrorString(r))
}
