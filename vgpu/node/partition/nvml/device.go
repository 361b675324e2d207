// Package nvml changes the MIG instances of a real GPU through NVIDIA's management library.
package nvml

import (
	"fmt"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
	"github.com/gshare-dev/gshare/vgpu/node/partition"
)

// Device implements partition.Device. It needs the rights of root, and a library that stays initialised: a new session takes
// seconds to find the handles again.
type Device struct {
	handle nvml.Device
	model  *mig.Model
	kinds  map[*mig.Profile]nvml.GpuInstanceProfileInfo
	other  []nvml.GpuInstanceProfileInfo // profiles that package mig does not describe
}

// Find gives the GPU of that UUID. The error is partition.ErrNoGPU where there is none, partition.ErrNoMIG where it is not in MIG mode,
// which is left as it is.
func Find(library nvml.Interface, uuid string) (*Device, error) {
	handle, r := library.DeviceGetHandleByUUID(uuid)
	if r == nvml.ERROR_NOT_FOUND {
		return nil, fmt.Errorf("%s: %w", uuid, partition.ErrNoGPU)
	}
	if r != nvml.SUCCESS {
		return nil, failed("find "+uuid, r)
	}
	if err := divided(handle); err != nil {
		return nil, fmt.Errorf("%s: %w", uuid, err)
	}
	d := &Device{handle: handle, model: &mig.Model{Name: uuid}, kinds: map[*mig.Profile]nvml.GpuInstanceProfileInfo{}}
	return d, d.discover()
}

// divided gives partition.ErrNoMIG where a GPU is not in MIG mode, another error where the driver does not say.
func divided(handle nvml.Device) error {
	switch mode, _, r := handle.GetMigMode(); {
	case r == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE:
		return nil
	case r == nvml.SUCCESS || r == nvml.ERROR_NOT_SUPPORTED || r == nvml.ERROR_FUNCTION_NOT_FOUND:
		return partition.ErrNoMIG
	default:
		return failed("MIG mode", r)
	}
}

// Model is what the driver says of this very GPU, not a table's. Steps and instances use its profiles.
func (d *Device) Model() *mig.Model { return d.model }

// Instances implements partition.Device.
func (d *Device) Instances() (found []partition.Instance, err error) {
	for i := range d.model.Profiles {
		p := &d.model.Profiles[i]
		err := d.each(d.kinds[p], func(handle nvml.GpuInstance, start int) error {
			instance, err := read(handle, mig.Instance{Profile: p, Start: start})
			found = append(found, instance)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, kind := range d.other {
		err := d.each(kind, func(nvml.GpuInstance, int) error {
			return fmt.Errorf("there is an instance of a profile without known places: number %d to the driver", kind.Id)
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortFunc(found, func(a, b partition.Instance) int { return a.Start - b.Start })
	return found, nil
}

// each visits the instances of a profile.
func (d *Device) each(kind nvml.GpuInstanceProfileInfo, visit func(handle nvml.GpuInstance, start int) error) error {
	if kind.InstanceCount == 0 {
		return nil // go-nvml panics
	}
	handles, r := d.handle.GetGpuInstances(&kind)
	if r != nvml.SUCCESS {
		return failed("list GPU instances", r)
	}
	for _, handle := range handles {
		info, r := handle.GetInfo()
		if r != nvml.SUCCESS {
			return failed("read GPU instance", r)
		}
		if err := visit(handle, int(info.Placement.Start)); err != nil {
			return err
		}
	}
	return nil
}

// Do implements partition.Device.
func (d *Device) Do(s geometry.Step) error {
	kind, ok := d.kinds[s.Profile]
	if !ok {
		return fmt.Errorf("the GPU has no profile %s", s.Profile.Name)
	}
	if s.Action == geometry.CreateGPU {
		_, r := d.handle.CreateGpuInstanceWithPlacement(&kind, &nvml.GpuInstancePlacement{Start: uint32(s.Start), Size: uint32(s.Profile.Memory)})
		return answer(r)
	}
	err := error(partition.ErrNotFound)
	all := d.each(kind, func(handle nvml.GpuInstance, start int) error {
		if start == s.Start {
			err = change(handle, s)
		}
		return nil
	})
	if all != nil {
		return all
	}
	return err
}

// answer gives the driver's refusals their names.
func answer(r nvml.Return) error {
	switch r {
	case nvml.SUCCESS:
		return nil
	case nvml.ERROR_INSUFFICIENT_RESOURCES:
		return partition.ErrNoRoom
	case nvml.ERROR_IN_USE:
		return partition.ErrInUse
	case nvml.ERROR_NOT_FOUND:
		return partition.ErrNotFound
	}
	return fmt.Errorf("NVML says %s", nvml.ErrorString(r))
}

func failed(what string, r nvml.Return) error {
	return fmt.Errorf("%s: NVML says %s", what, nvml.ErrorString(r))
}
