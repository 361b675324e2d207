// Package nvml creates and removes the MIG instances of a real GPU through NVIDIA's management library.
package nvml

import (
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
	"github.com/gshare-dev/gshare/vgpu/node/partition"
)

// Device implements partition.Device with NVML. It needs root privileges, and a library that stays initialised, as finding handles takes
// seconds.
type Device struct {
	handle        nvml.Device
	model         *mig.Model
	infos         map[*mig.Profile]nvml.GpuInstanceProfileInfo
	otherProfiles []nvml.GpuInstanceProfileInfo // those that package mig does not describe
}

// Find returns the GPU with a UUID, without changing its MIG mode. The error is partition.ErrNoGPU if there is none, and partition.ErrNoMIG
// if it is not in MIG mode.
func Find(library nvml.Interface, uuid string) (*Device, error) {
	handle, r := library.DeviceGetHandleByUUID(uuid)
	if r == nvml.ERROR_NOT_FOUND {
		return nil, fmt.Errorf("%s: %w", uuid, partition.ErrNoGPU)
	}
	if r != nvml.SUCCESS {
		return nil, callError("find "+uuid, r)
	}
	if err := checkMIGMode(handle); err != nil {
		return nil, fmt.Errorf("%s: %w", uuid, err)
	}
	d := &Device{handle: handle, model: &mig.Model{Name: uuid}, infos: map[*mig.Profile]nvml.GpuInstanceProfileInfo{}}
	return d, d.discoverProfiles()
}

// checkMIGMode returns partition.ErrNoMIG if a GPU is not in MIG mode, and another error if the mode cannot be read.
func checkMIGMode(handle nvml.Device) error {
	switch mode, _, r := handle.GetMigMode(); {
	case r == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE:
		return nil
	case r == nvml.SUCCESS || r == nvml.ERROR_NOT_SUPPORTED || r == nvml.ERROR_FUNCTION_NOT_FOUND:
		return partition.ErrNoMIG
	default:
		return callError("read MIG mode", r)
	}
}

// Model returns the MIG profiles of the GPU as the driver reports them. Steps and instances point to them.
func (d *Device) Model() *mig.Model { return d.model }

// Instances returns the GPU instances that exist, in the order of their positions. It fails if one has a profile that package mig does not
// describe.
func (d *Device) Instances() (found []partition.Instance, err error) {
	for i := range d.model.Profiles {
		p := &d.model.Profiles[i]
		err := d.eachInstance(d.infos[p], func(handle nvml.GpuInstance, start int) error {
			instance, err := readInstance(handle, mig.Instance{Profile: p, Start: start})
			found = append(found, instance)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, info := range d.otherProfiles {
		err := d.eachInstance(info, func(nvml.GpuInstance, int) error {
			return fmt.Errorf("MIG instance of an unsupported profile, with ID %d", info.Id)
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(found, func(a, b partition.Instance) int { return a.Start - b.Start })
	return found, nil
}

// eachInstance calls visit for each GPU instance of a profile.
func (d *Device) eachInstance(info nvml.GpuInstanceProfileInfo, visit func(handle nvml.GpuInstance, start int) error) error {
	if info.InstanceCount == 0 {
		return nil // go-nvml would panic
	}
	handles, r := d.handle.GetGpuInstances(&info)
	if r != nvml.SUCCESS {
		return callError("list GPU instances", r)
	}
	for _, handle := range handles {
		instance, r := handle.GetInfo()
		if r != nvml.SUCCESS {
			return callError("read GPU instance", r)
		}
		if err := visit(handle, int(instance.Placement.Start)); err != nil {
			return err
		}
	}
	return nil
}

// Apply executes a step through NVML. See partition.Device for its errors.
func (d *Device) Apply(s geometry.Step) error {
	info, ok := d.infos[s.Profile]
	if !ok {
		return fmt.Errorf("unknown MIG profile %s", s.Profile.Name)
	}
	if s.Action == geometry.CreateGPU {
		_, r := d.handle.CreateGpuInstanceWithPlacement(&info, &nvml.GpuInstancePlacement{Start: uint32(s.Start), Size: uint32(s.Profile.Memory)})
		return stepError(r)
	}
	err := error(partition.ErrNotFound)
	listErr := d.eachInstance(info, func(handle nvml.GpuInstance, start int) error {
		if start == s.Start {
			err = applyToInstance(handle, s)
		}
		return nil
	})
	if listErr != nil {
		return listErr
	}
	return err
}

// stepError converts the result of an NVML call that creates or destroys an instance to an error of package partition.
func stepError(r nvml.Return) error {
	switch r {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_INSUFFICIENT_RESOURCES:
		return partition.ErrInsufficientResources
	case nvml.ERROR_IN_USE:
		return partition.ErrInUse
	case nvml.ERROR_NOT_FOUND:
		return partition.ErrNotFound
	}
	return fmt.Errorf("NVML: %s", nvml.ErrorString(r))
}

// callError converts the result of a failed NVML call to an error. action says what the call was made for.
func callError(action string, r nvml.Return) error {
	return fmt.Errorf("%s: NVML: %s", action, nvml.ErrorString(r))
}
