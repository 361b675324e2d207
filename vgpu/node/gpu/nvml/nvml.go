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

// Source asks the library; a machine without it or without a driver has no GPU. It serves concurrent callers: one whose call hangs
// keeps no other waiting, unless the driver does.
type Source struct {
	library nvml.Interface
	session session
}

// New gives the source of a library, such as nvml.New, that of this machine.
func New(library nvml.Interface) *Source { return &Source{library: library} }

// Devices implements gpu.Source. A device that cannot be read is there with its fault, if it still says who it is.
func (s *Source) Devices() (devices []gpu.Device, err error) {
	err = s.each(func(index int, handle nvml.Device) error {
		device, err := read(handle)
		if device.UUID == "" {
			return err
		}
		if err != nil {
			device.Fault = err.Error()
		} else {
			s.session.health.judge(handle, &device)
		}
		device.Index = index
		devices = append(devices, device)
		return err
	})
	if err == nil && len(devices) == 0 {
		err = gpu.ErrNone
	}
	return devices, err
}

// each visits the devices that are not lost: a lost one cannot even say who it is.
func (s *Source) each(visit func(index int, handle nvml.Device) error) error {
	handles, err := s.session.enter(s.library)
	if err != nil {
		return err
	}
	well := true
	defer func() { s.session.leave(s.library, well) }()
	for i, handle := range handles {
		if handle != nil && errors.Is(visit(i, handle), errDriver) {
			well = false
		}
	}
	return nil
}

func read(handle nvml.Device) (d gpu.Device, err error) {
	uuid, r := handle.GetUUID()
	if r != nvml.SUCCESS {
		return d, failed("UUID", r)
	}
	d.UUID = uuid
	name, r := handle.GetName()
	if r != nvml.SUCCESS {
		return d, failed("name", r)
	}
	memory, r := handle.GetMemoryInfo_v2()
	if r != nvml.SUCCESS {
		return d, failed("memory", r)
	}
	cores, r := handle.GetNumGpuCores()
	if r != nvml.SUCCESS {
		return d, failed("cores", r)
	}
	major, minor, r := handle.GetCudaComputeCapability()
	if r != nvml.SUCCESS {
		return d, failed("compute capability", r)
	}
	d.Model, d.SMs, d.Memory = modelOf(name), cores/coresOfSM(major, minor), share.Bytes(memory.Total-memory.Reserved)
	if _, _, _, failure, r := handle.GetRemappedRows(); r == nvml.SUCCESS && failure {
		return d, errors.New("rows of its memory could not be remapped: replace it")
	}
	if d.Minor, r = handle.GetMinorNumber(); r != nvml.SUCCESS {
		return d, failed("minor number", r) // 0 is that of another device
	}
	if d.MIG, err = split(handle); err != nil {
		d.MIG = true // it is not offered whole
		return d, err
	}
	if d.MIG {
		d.Instances, d.Unread = listed(instances(handle))
	}
	return d, d.Validate()
}

// listed is a list, and why it may lack something. That is no error of the device: what is wrong with it, or with the session, shows in
// other calls, and an end of the session would lose Xid events.
func listed(found []gpu.Instance, err error) ([]gpu.Instance, string) {
	if err != nil {
		return found, err.Error()
	}
	return found, ""
}

// split says that a device is in MIG mode; one that has none says that it is not supported.
func split(handle nvml.Device) (bool, error) {
	switch mode, _, r := handle.GetMigMode(); r {
	case nvml.SUCCESS:
		return mode == nvml.DEVICE_MIG_ENABLE, nil
	case nvml.ERROR_NOT_SUPPORTED, nvml.ERROR_FUNCTION_NOT_FOUND:
		return false, nil
	default:
		return false, failed("MIG mode", r)
	}
}

var errDriver = errors.New("NVML says")

func failed(what string, r nvml.Return) error {
	return fmt.Errorf("%s: %w %s", what, errDriver, nvml.ErrorString(r))
}
