package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/vgpu/node/gpu"
)

// Processes returns the processes that use the GPUs. In MIG mode it lists them by instance. If it returns an error, some may be missing.
func (s *Source) Processes() (found []gpu.Process, all error) {
	err := s.eachDevice(func(_ int, handle nvml.Device) error {
		list := func(handle nvml.Device) error {
			processes, err := listProcesses(handle)
			found = append(found, processes...)
			return err
		}
		mig, err := isMIG(handle)
		switch {
		case err != nil:
		case mig:
			all = errors.Join(all, eachInstance(handle, list)) // instances come and go: an error is no reason for a new session
		default:
			err = list(handle)
		}
		all = errors.Join(all, err)
		return err
	})
	return deduplicate(found), errors.Join(err, all)
}

// deduplicate sorts the processes and removes duplicates: the driver may list an MPS client a second time as an ordinary process.
func deduplicate(p []gpu.Process) []gpu.Process {
	slices.SortFunc(p, func(a, b gpu.Process) int { return cmp.Or(cmp.Compare(a.Slice, b.Slice), cmp.Compare(a.PID, b.PID)) })
	return slices.Compact(p)
}

// listProcesses returns the processes on a GPU or MIG instance: those with a CUDA context of their own, and MPS clients.
func listProcesses(handle nvml.Device) (found []gpu.Process, err error) {
	uuid, r := handle.GetUUID()
	if r != nvml.SUCCESS {
		return nil, callError("read UUID", r)
	}
	for _, list := range []func() ([]nvml.ProcessInfo, nvml.Return){
		handle.GetComputeRunningProcesses, handle.GetMPSComputeRunningProcesses,
	} {
		processes, r := list()
		if r != nvml.SUCCESS && r != nvml.ERROR_NOT_SUPPORTED && r != nvml.ERROR_FUNCTION_NOT_FOUND {
			err = errors.Join(err, fmt.Errorf("device %s: %w", uuid, callError("list processes", r)))
		}
		for _, p := range processes {
			found = append(found, gpu.Process{PID: int(p.Pid), Slice: uuid})
		}
	}
	return found, err
}
