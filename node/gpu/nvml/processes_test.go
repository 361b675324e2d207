package nvml

import (
	"math"
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/node/gpu"
)

// listOf returns a call of NVML that lists processes.
func listOf(infos ...nvml.ProcessInfo) func() ([]nvml.ProcessInfo, nvml.Return) {
	return func() ([]nvml.ProcessInfo, nvml.Return) { return infos, nvml.SUCCESS }
}

// busy sets the processes of a device: those with contexts of their own, and the clients of MPS.
func busy(d *mock.Device, own, clients []uint32) *mock.Device {
	list := func(pids []uint32) func() ([]nvml.ProcessInfo, nvml.Return) {
		var infos []nvml.ProcessInfo
		for _, pid := range pids {
			infos = append(infos, nvml.ProcessInfo{Pid: pid})
		}
		return listOf(infos...)
	}
	d.GetComputeRunningProcessesFunc, d.GetMPSComputeRunningProcessesFunc, d.GetGraphicsRunningProcessesFunc = list(own), list(clients), unsupported
	return d
}

func unsupported() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_NOT_SUPPORTED }

func TestProcesses(t *testing.T) {
	a, broken, partitioned := device("GPU-a"), device("GPU-b"), device("GPU-c")
	a.GetComputeRunningProcessesFunc = listOf(nvml.ProcessInfo{Pid: 9, UsedGpuMemory: 90}, nvml.ProcessInfo{Pid: 3, UsedGpuMemory: 30})
	a.GetMPSComputeRunningProcessesFunc = listOf(nvml.ProcessInfo{Pid: 5, UsedGpuMemory: math.MaxUint64}, nvml.ProcessInfo{Pid: 3})
	a.GetGraphicsRunningProcessesFunc = listOf(nvml.ProcessInfo{Pid: 9, UsedGpuMemory: 95}, nvml.ProcessInfo{Pid: 4, UsedGpuMemory: 40})
	broken.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) { return nil, nvml.ERROR_UNKNOWN }
	broken.GetMPSComputeRunningProcessesFunc, broken.GetGraphicsRunningProcessesFunc = unsupported, unsupported
	partitioned.GetMigModeFunc = func() (int, int, nvml.Return) { return nvml.DEVICE_MIG_ENABLE, 1, nvml.SUCCESS }
	partitioned.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 2, nvml.SUCCESS }
	partitioned.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i == 0 {
			return nil, nvml.ERROR_NOT_FOUND
		}
		d := instance("MIG-1", "NVIDIA A100-SXM4-80GB MIG 1g.10gb")
		d.GetComputeRunningProcessesFunc = listOf(nvml.ProcessInfo{Pid: 7, UsedGpuMemory: 70})
		d.GetMPSComputeRunningProcessesFunc, d.GetGraphicsRunningProcessesFunc = unsupported, unsupported
		return d, nvml.SUCCESS
	}
	got, err := New(library(a, nil, broken, partitioned)).Processes()
	want := []gpu.Process{
		{PID: 3, Slice: "GPU-a", Memory: 30}, {PID: 4, Slice: "GPU-a", Memory: 40, Graphics: true}, {PID: 5, Slice: "GPU-a"},
		{PID: 9, Slice: "GPU-a", Memory: 95}, {PID: 7, Slice: "MIG-1", Memory: 70},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if err == nil || !strings.Contains(err.Error(), "GPU-b") || strings.Contains(err.Error(), "GPU-a") {
		t.Errorf("got %v, want an error of GPU-b alone", err)
	}
}
