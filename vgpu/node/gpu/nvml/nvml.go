// Package nvml lists the GPUs of this machine, with their MIG instances and faults, and the processes on them, through NVIDIA's
// management library.
package nvml

import (
	"errors"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Source lists GPUs and processes through NVML. A machine without NVML or driver counts as one without GPUs. It is safe for concurrent use;
// a call that hangs blocks no other, unless the driver does.
type Source struct {
	library nvml.Interface
	session session
}

// New returns a Source that uses the given NVML library, such as nvml.New() for this machine's.
func New(library nvml.Interface) *Source { return &Source{library: library} }

// Devices returns the machine's GPUs. A GPU whose UUID is known but that cannot be read is returned with a fault.
func (s *Source) Devices() (devices []gpu.Device, err error) {
	err = s.eachDevice(func(index int, handle nvml.Device) error {
		device, err := readDevice(handle)
		if device.UUID == "" {
			return err
		}
		if err != nil {
			device.Fault = err.Error()
		} else {
			s.session.health.setFaults(handle, &device)
		}
		device.Index = index
		devices = append(devices, device)
		return err
	})
	if err == nil && len(devices) == 0 {
		err = gpu.ErrNoGPU
	}
	return devices, err
}

// eachDevice calls visit for each GPU whose handle is known. After an error of the driver, the next caller initializes NVML again.
func (s *Source) eachDevice(visit func(index int, handle nvml.Device) error) error {
	handles, err := s.session.acquire(s.library)
	if err != nil {
		return err
	}
	ok := true
	defer func() { s.session.release(s.library, ok) }()
	for i, handle := range handles {
		if handle != nil && errors.Is(visit(i, handle), errDriver) {
			ok = false
		}
	}
	return nil
}

// readDevice reads the properties of a GPU. After an error, the properties that were read before it are set.
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
	d.Model, d.SMs, d.Memory = modelOf(name), cores/coresPerSM(major, minor), share.Bytes(memory.Total-memory.Reserved)
	if _, _, _, failure, r := handle.GetRemappedRows(); r == nvml.SUCCESS && failure {
		return d, errors.New("memory rows could not be remapped: replace the device")
	}
	if d.Minor, r = handle.GetMinorNumber(); r != nvml.SUCCESS {
		return d, callError("read minor number", r) // 0 would be another device's
	}
	if d.MIG, err = isMIG(handle); err != nil {
		d.MIG = true // so that it is not offered whole
		return d, err
	}
	if d.MIG {
		if d.Instances, err = listInstances(handle); err != nil {
			// Not an error of the device: its faults show in other calls, and a new session would lose Xid events.
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
