// Package nvml lists the GPUs of this machine, with their MIG instances and faults, and the processes on them, through NVIDIA's
// management library.
package nvml

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Source lists GPUs and processes through NVML. A machine without NVML or driver counts as one without GPUs. It is safe for concurrent use;
// a call that hangs does not block others, unless the driver does.
type Source struct {
	library nvml.Interface
	session session
}

// New returns a Source that uses the given NVML library, such as nvml.New() for this machine's.
func New(library nvml.Interface) *Source { return &Source{library: library} }

// Devices returns the machine's GPUs. A GPU whose UUID is known but that cannot be read is returned with a fault.
func (s *Source) Devices() (devices []gpu.Device, err error) {
	err = s.eachDevice(func(index int, handle nvml.Device, where locality) error {
		device, err := readDevice(handle)
		if device.UUID == "" {
			return err
		}
		if err != nil {
			device.Fault = err.Error()
		} else {
			s.session.health.setFaults(handle, &device)
		}
		where.set(&device)
		device.Index = index
		if version, r := s.library.SystemGetDriverVersion(); r == nvml.SUCCESS {
			device.DriverVersion = version
		}
		devices = append(devices, device)
		return err
	})
	if err == nil && len(devices) == 0 {
		err = gpu.ErrNoGPU
	}
	return devices, err
}

// eachDevice calls visit for each GPU whose handle is known. After an error of the driver, the next caller initializes NVML again.
func (s *Source) eachDevice(visit func(index int, handle nvml.Device, where locality) error) error {
	handles, where, err := s.session.acquire(s.library)
	if err != nil {
		return err
	}
	ok := true
	defer func() { s.session.release(s.library, ok) }()
	for i, handle := range handles {
		if handle != nil && errors.Is(visit(i, handle, where[i]), errDriver) {
			ok = false
		}
	}
	return nil
}

// readDevice reads the properties of a GPU. If it returns an error, the properties that were read before are set.
func readDevice(handle nvml.Device) (d gpu.Device, err error) {
	uuid, r := handle.GetUUID()
	if r != nvml.SUCCESS {
		return d, callError("read UUID", r)
	}
	d.UUID = uuid
	name, r := handle.GetName()
	if r != nvml.SUCCESS {
		return d, callError("read name", r)
	}
	memory, r := handle.GetMemoryInfo_v2()
	if r != nvml.SUCCESS {
		return d, callError("read memory", r)
	}
	cores, r := handle.GetNumGpuCores()
	if r != nvml.SUCCESS {
		return d, callError("read number of cores", r)
	}
	major, minor, r := handle.GetCudaComputeCapability()
	if r != nvml.SUCCESS {
		return d, callError("read compute capability", r)
	}
	d.ComputeCapability = fmt.Sprintf("%d.%d", major, minor)
	d.Model, d.SMs, d.Memory = modelOf(name), cores/coresPerSM(major, minor), share.Bytes(memory.Total-memory.Reserved)
	if _, _, _, failure, r := handle.GetRemappedRows(); r == nvml.SUCCESS && failure {
		return d, errors.New("memory rows could not be remapped: replace the device")
	}
	if d.Minor, r = handle.GetMinorNumber(); r != nvml.SUCCESS {
		return d, callError("read minor number", r) // 0 would be the minor number of another device
	}
	if d.MIG, err = isMIG(handle); err != nil {
		d.MIG = true // so that the whole device is not offered
		return d, err
	}
	if d.MIG {
		if d.Instances, err = listInstances(handle); err != nil {
			// This is not an error of the device: its faults show in other calls, and a new session would lose Xid events.
			d.Incomplete = err.Error()
		}
	}
	return d, d.Validate()
}

// isMIG reports whether a GPU is in MIG mode.
func isMIG(handle nvml.Device) (bool, error) {
	switch mode, _, r := handle.GetMigMode(); r {
	case nvml.SUCCESS:
		return mode == nvml.DEVICE_MIG_ENABLE, nil
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND:
		return false, nil
	default:
		return false, callError("read MIG mode", r)
	}
}

// errDriver is wrapped by the errors of all NVML calls.
var errDriver = errors.New("NVML")

// callError returns an error that names the attempted action and NVML's return code.
func callError(action string, r nvml.Return) error {
	return fmt.Errorf("%s: %w: %s", action, errDriver, nvml.ErrorString(r))
}

var (
	brandPattern  = regexp.MustCompile(`^(?:(?:NVIDIA|Tesla|GeForce|Quadro) )+`)
	detailPattern = regexp.MustCompile(`(?:-.*| (?:\d+GB|PCIe|SXM\d?|NVL|HBM\w+)\b.*)$`) // form factor and memory
)

// modelOf returns the GPU model in a product name, such as A100 for "NVIDIA A100-SXM4-80GB".
func modelOf(name string) string {
	return detailPattern.ReplaceAllString(brandPattern.ReplaceAllString(strings.TrimSpace(name), ""), "")
}

// coresPerSM returns the number of CUDA cores in one SM, by compute capability (CUDA C++ Programming Guide, compute capabilities): 64 on
// Volta, Turing and the A100, 128 on other Ampere GPUs and later ones.
func coresPerSM(major, minor int) int {
	if major == 7 || major == 8 && minor == 0 {
		return 64
	}
	return 128
}

// Processes returns the processes that use the GPUs. In MIG mode it lists them by instance. If it returns an error, some may be missing.
func (s *Source) Processes() (found []gpu.Process, all error) {
	err := s.eachDevice(func(_ int, handle nvml.Device, _ locality) error {
		list := func(handle nvml.Device) error {
			processes, err := listProcesses(handle)
			found = append(found, processes...)
			return err
		}
		mig, err := isMIG(handle)
		switch {
		case err != nil:
		case mig:
			all = errors.Join(all, eachInstance(handle, list)) // an error of an instance, which may just have been removed, is no reason for a new session
		default:
			err = list(handle)
		}
		all = errors.Join(all, err)
		return err
	})
	return mergeProcesses(found), errors.Join(err, all)
}

// mergeProcesses sorts the processes and merges those that are listed more than once: the driver may list an MPS client as an ordinary
// process, too, and a process that uses CUDA and graphics in both lists. Each entry then has all of the process's memory.
func mergeProcesses(listed []gpu.Process) (merged []gpu.Process) {
	slices.SortFunc(listed, func(a, b gpu.Process) int { return cmp.Or(cmp.Compare(a.Slice, b.Slice), cmp.Compare(a.PID, b.PID)) })
	for _, p := range listed {
		if n := len(merged) - 1; n >= 0 && merged[n].Slice == p.Slice && merged[n].PID == p.PID {
			merged[n].Memory, merged[n].Graphics = max(merged[n].Memory, p.Memory), merged[n].Graphics && p.Graphics
			continue
		}
		merged = append(merged, p)
	}
	return merged
}

// listProcesses returns the processes on a GPU or MIG instance: those with a context of their own, MPS clients, and those with graphics.
func listProcesses(handle nvml.Device) (found []gpu.Process, err error) {
	uuid, r := handle.GetUUID()
	if r != nvml.SUCCESS {
		return nil, callError("read UUID", r)
	}
	for _, list := range []struct {
		call     func() ([]nvml.ProcessInfo, nvml.Return)
		graphics bool
	}{{handle.GetComputeRunningProcesses, false}, {handle.GetMPSComputeRunningProcesses, false}, {handle.GetGraphicsRunningProcesses, true}} {
		processes, r := list.call()
		if r != nvml.SUCCESS && r != nvml.ERROR_NOT_SUPPORTED && r != nvml.ERROR_FUNCTION_NOT_FOUND {
			err = errors.Join(err, fmt.Errorf("device %s: %w", uuid, callError("list processes", r)))
		}
		for _, p := range processes {
			found = append(found, gpu.Process{PID: int(p.Pid), Slice: uuid, Memory: usedMemory(p), Graphics: list.graphics})
		}
	}
	return found, err
}

// usedMemory returns the memory of a listed process, or 0 if the driver does not know it, in which case it reports the largest number.
func usedMemory(p nvml.ProcessInfo) share.Bytes {
	if p.UsedGpuMemory > uint64(share.MaxMemory) {
		return 0
	}
	return share.Bytes(p.UsedGpuMemory)
}
