package nvml

import (
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/node/gpu"
)

// busy sets the processes of a device: those with contexts of their own, and the clients of MPS.
func busy(d *mock.Device, own, clients []uint32) *mock.Device {
	list := func(pids []uint32) func() ([]nvml.ProcessInfo, nvml.Return) {
		return func() (infos []nvml.ProcessInfo, _ nvml.Return) {
			for _, pid := range pids {
				infos = append(infos, nvml.ProcessInfo{Pid: pid})
			}
			return infos, nvml.SUCCESS
		}
	}
	d.GetComputeRunningProcessesFunc, d.GetMPSComputeRunningProcessesFunc = list(own), list(clients)
	return d
}

func TestProcesses(t *testing.T) {
	a, broken, partitioned := busy(device("GPU-a"), []uint32{9, 3}, []uint32{5, 3}), device("GPU-b"), device("GPU-c")
	broken.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_UNKNOWN }
	broken.GetMPSComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED }
	partitioned.GetMigModeFunc = func() (int, int, nvml.Return) { return nvml.DEVICE_MIG_ENABLE, 1, nvml.SUCCESS }
	partitioned.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 2, nvml.SUCCESS }
	partitioned.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i == 0 {
			return nil, nvml.ERROR_NOT_FOUND
		}
		return busy(instance("MIG-1", "NVIDIA A100-SXM4-80GB MIG 1g.10gb"), []uint32{7}, nil), nvml.SUCCESS
	}
	got, err := New(library(a, nil, broken, partitioned)).Processes()
	want := []gpu.Process{{PID: 3, Slice: "GPU-a"}, {PID: 5, Slice: "GPU-a"}, {PID: 9, Slice: "GPU-a"}, {PID: 7, Slice: "MIG-1"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err == nil || !strings.Contains(err.Error(), "GPU-b") || strings.Contains(err.Error(), "GPU-a") {
		t.Errorf("got %v, want an error of GPU-b alone", err)
	}
}
