package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/vgpu/node/gpu"
)

// Processes implements gpu.Source. In MIG mode, the processes of an instance are listed by the instance only.
func (s *Source) Processes() (found []gpu.Process, all error) {
	err := s.each(func(_ int, handle nvml.Device) error {
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

// deduplicate returns each process once for each slice: the driver may list a client of MPS among the other processes too.
func deduplicate(p []gpu.Process) []gpu.Process {
	slices.SortFunc(p, func(a, b gpu.Process) int { return cmp.Or(cmp.Compare(a.Slice, b.Slice), cmp.Compare(a.PID, b.PID)) })
	return slices.Compact(p)
}

// listProcesses returns the processes of a device or an instance: those with a context of their own, and the clients of MPS.
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
