package nvml

import (
	"errors"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// library returns a mock of the library with devices, of which nil ones are lost.
func library(devices ...*mock.Device) *mock.Interface {
	return &mock.Interface{
		InitFunc:                   func() nvml.Return { return nvml.SUCCESS },
		ShutdownFunc:               func() nvml.Return { return nvml.SUCCESS },
		EventSetCreateFunc:         func() (nvml.EventSet, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED },
		SystemGetDriverVersionFunc: func() (string, nvml.Return) { return "580.65.06", nvml.SUCCESS },
		DeviceGetCountFunc:         func() (int, nvml.Return) { return len(devices), nvml.SUCCESS },
		DeviceGetHandleByIndexFunc: func(i int) (nvml.Device, nvml.Return) {
			if devices[i] == nil {
				return nil, nvml.ERROR_GPU_IS_LOST
			}
			return devices[i], nvml.SUCCESS
		},
	}
}

// device returns a mock of an A100 without MIG.
func device(uuid string) *mock.Device {
	return &mock.Device{
		GetUUIDFunc: func() (string, nvml.Return) { return uuid, nvml.SUCCESS },
		GetNameFunc: func() (string, nvml.Return) { return "NVIDIA A100-SXM4-80GB", nvml.SUCCESS },
		GetMemoryInfo_v2Func: func() (nvml.Memory_v2, nvml.Return) {
			return nvml.Memory_v2{Total: 80 << 30, Reserved: 1 << 30}, nvml.SUCCESS
		},
		GetNumGpuCoresFunc:           func() (int, nvml.Return) { return 6912, nvml.SUCCESS },
		GetCudaComputeCapabilityFunc: func() (int, int, nvml.Return) { return 8, 0, nvml.SUCCESS },
		GetRemappedRowsFunc:          func() (int, int, bool, bool, nvml.Return) { return 0, 0, false, false, nvml.SUCCESS },
		GetMinorNumberFunc:           func() (int, nvml.Return) { return 3, nvml.SUCCESS },
		GetMigModeFunc:               func() (int, int, nvml.Return) { return 0, 0, nvml.ERROR_NOT_SUPPORTED },
		GetMemoryAffinityFunc:        func(int, nvml.AffinityScope) ([]uint, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED },
		GetP2PStatusFunc: func(nvml.Device, nvml.GpuP2PCapsIndex) (nvml.GpuP2PStatus, nvml.Return) {
			return nvml.P2P_STATUS_NOT_SUPPORTED, nvml.SUCCESS
		},
	}
}

// instance returns a mock of a MIG instance.
func instance(uuid, name string) *mock.Device {
	return &mock.Device{
		GetUUIDFunc:              func() (string, nvml.Return) { return uuid, nvml.SUCCESS },
		GetNameFunc:              func() (string, nvml.Return) { return name, nvml.SUCCESS },
		GetGpuInstanceIdFunc:     func() (int, nvml.Return) { return 7, nvml.SUCCESS },
		GetComputeInstanceIdFunc: func() (int, nvml.Return) { return 1, nvml.SUCCESS },
		GetAttributesFunc: func() (nvml.DeviceAttributes, nvml.Return) {
			return nvml.DeviceAttributes{MultiprocessorCount: 14, MemorySizeMB: 9728}, nvml.SUCCESS
		},
	}
}

func TestDevices(t *testing.T) {
	healthy := gpu.Device{
		UUID: "GPU-a", Minor: 3, Model: "A100", SMs: 108, Memory: 79 << 30,
		Properties: gpu.Properties{DriverVersion: "580.65.06", ComputeCapability: "8.0"},
	}
	remapped, broken, partitioned := device("GPU-b"), device("GPU-c"), device("GPU-d")
	remapped.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 0, 9, false, true, nvml.SUCCESS }
	broken.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) { return nvml.Memory_v2{}, nvml.ERROR_GPU_IS_LOST }
	partitioned.GetMigModeFunc = func() (int, int, nvml.Return) { return nvml.DEVICE_MIG_ENABLE, 1, nvml.SUCCESS }
	partitioned.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	parts := map[int]*mock.Device{
		0: instance("MIG-1", "NVIDIA A100-SXM4-80GB MIG 1g.10gb"), 2: instance("MIG-2", "NVIDIA A100-SXM4-80GB MIG 1c.2g.20gb"),
		6: instance("MIG-3", "NVIDIA A100-SXM4-80GB MIG 1g.10gb+me"),
	}
	partitioned.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if parts[i] == nil {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return parts[i], nvml.SUCCESS
	}
	devices, err := New(library(device("GPU-a"), nil, remapped, broken, partitioned)).Devices()
	if err != nil || len(devices) != 4 {
		t.Fatalf("got %+v, %v; want 4 of 5 devices", devices, err)
	}
	if diff := cmp.Diff(healthy, devices[0]); diff != "" {
		t.Error(diff)
	}
	if d := devices[1]; !strings.Contains(d.Fault, "remapped") || d.SMs != 108 {
		t.Errorf("remapping failure: got %+v", d)
	}
	if d := devices[2]; d.UUID != "GPU-c" || !strings.Contains(d.Fault, "memory") {
		t.Errorf("unreadable memory: got %+v", d)
	}
	want := []gpu.Instance{
		{UUID: "MIG-1", Profile: "1g.10gb", SMs: 14, Memory: 9728 * share.MiB, GPU: 7, Compute: 1}, {UUID: "MIG-3", Profile: "1g.10gb+me", SMs: 14, Memory: 9728 * share.MiB, GPU: 7, Compute: 1},
	}
	if diff := cmp.Diff(want, devices[3].Instances); diff != "" || !devices[3].MIG || devices[3].Fault != "" {
		t.Errorf("%+v\n%s", devices[3], diff)
	}
}

// TestNoGPU: without devices that answer, the error is ErrNoGPU.
func TestNoGPU(t *testing.T) {
	for name, l := range map[string]*mock.Interface{"no device": library(), "all lost": library(nil)} {
		t.Run(name, func(t *testing.T) {
			if devices, err := New(l).Devices(); !errors.Is(err, gpu.ErrNoGPU) {
				t.Errorf("got %v, %v; want ErrNoGPU", devices, err)
			}
		})
	}
}
