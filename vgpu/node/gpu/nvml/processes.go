package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/vgpu/node/gpu"
)

// Processes implements gpu.Source. A device in MIG mode tells the processes of an instance by the instance only.
func (s *Source) Processes() (found []gpu.Process, all error) {
	err := s.each(func(_ int, handle nvml.Device) error {
		list := func(handle nvml.Device) error {
			processes, err := running(handle)
			found = append(found, processes...)
			return err
		}
		parts, bad := split(handle)
		switch {
		case bad != nil:
		case parts:
			all = errors.Join(all, eachInstance(handle, list)) // which says nothing of the session
		default:
			bad = list(handle)
		}
		all = errors.Join(all, bad)
		return bad
	})
	return distinct(found), errors.Join(err, all)
}

// distinct leaves each process once on each slice: the driver may count a client of MPS among the others too.
func distinct(p []gpu.Process) []gpu.Process {
	slices.SortFunc(p, func(a, b gpu.Process) int { return cmp.Or(cmp.Compare(a.Slice, b.Slice), cmp.Compare(a.PID, b.PID)) })
	return slices.Compact(p)
}

// running lists the processes of a device or an instance: those with a context of their own, and the clients of MPS.
func running(handle nvml.Device) (found []gpu.Process, err error) {
	uuid, r := handle.GetUUID()
	if r != nvml.SUCCESS {
		return nil, failed("processes: UUID", r)
	}
	for _, list := range []func() ([]nvml.ProcessInfo, nvml.Return){
		handle.GetComputeRunningProcesses, handle.GetMPSComputeRunningProcesses,
	} {
		processes, r := list()
		if r != nvml.SUCCESS && r != nvml.ERROR_NOT_SUPPORTED && r != nvml.ERROR_FUNCTION_NOT_FOUND {
			err = errors.Join(err, fmt.Errorf("device %s: %w", uuid, failed("processes", r)))
		}
		for _, p := range processes {
			found = append(found, gpu.Process{PID: int(p.Pid), Slice: uuid})
		}
	}
	return found, err
}
