// Package nvml creates and removes the MIG instances of a real GPU through NVIDIA's management library.
package nvml

import (
	"fmt"
	"math"
	"slices"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/node/partition"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// Device implements partition.Device with NVML. It needs root privileges, and a library that stays initialised, as finding handles takes
// seconds.
type Device struct {
	handle        nvml.Device
	model         *mig.Model
	infos         map[*mig.Profile]nvml.GpuInstanceProfileInfo
	otherProfiles []nvml.GpuInstanceProfileInfo // profiles that package mig does not describe
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

// Model returns the MIG profiles of the GPU as the driver reports them. The instances that the Device lists, and the steps that it applies,
// refer to these profiles.
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

// eachInstance calls visit for each existing GPU instance of a profile.
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

// Apply creates or destroys an instance through NVML. Its errors are those of partition.Device.
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

// hasMediaEngines maps the NVML profile IDs that package mig describes to whether these profiles have the media engines.
var hasMediaEngines = map[int]bool{
	nvml.GPU_INSTANCE_PROFILE_1_SLICE: false, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV1: true, nvml.GPU_INSTANCE_PROFILE_1_SLICE_REV2: false,
	nvml.GPU_INSTANCE_PROFILE_2_SLICE: false, nvml.GPU_INSTANCE_PROFILE_2_SLICE_REV1: true, nvml.GPU_INSTANCE_PROFILE_3_SLICE: false,
	nvml.GPU_INSTANCE_PROFILE_4_SLICE: false, nvml.GPU_INSTANCE_PROFILE_7_SLICE: false,
}

// discoverProfiles reads the MIG profiles and their possible placements from the driver.
func (d *Device) discoverProfiles() error {
	memory, r := d.handle.GetMemoryInfo()
	if r != nvml.SUCCESS {
		return callError("read memory", r)
	}
	var infos []nvml.GpuInstanceProfileInfo
	for n := range nvml.GPU_INSTANCE_PROFILE_COUNT {
		info, r := d.handle.GetGpuInstanceProfileInfo(n)
		if isUnsupported(r) {
			continue
		}
		if r != nvml.SUCCESS {
			return callError(fmt.Sprintf("read MIG profile %d", n), r)
		}
		media, ok := hasMediaEngines[n]
		if !ok {
			d.otherProfiles = append(d.otherProfiles, info)
			continue
		}
		placements, r := d.handle.GetGpuInstancePossiblePlacements(&info)
		if r != nvml.SUCCESS || len(placements) == 0 {
			return callError(fmt.Sprintf("list placements of MIG profile %d", n), r)
		}
		infos = append(infos, info)
		d.addProfile(newProfile(info, placements, media))
	}
	return d.nameProfiles(infos, memory.Total)
}

// isUnsupported reports whether a call failed because the GPU has no profile with the given ID. After any other error the GPU may have the
// profile, and instances of it.
func isUnsupported(r nvml.Return) bool {
	return r == nvml.ERROR_NOT_SUPPORTED || r == nvml.ERROR_INVALID_ARGUMENT
}

// newProfile converts a profile from NVML, without its name.
func newProfile(info nvml.GpuInstanceProfileInfo, placements []nvml.GpuInstancePlacement, media bool) mig.Profile {
	p := mig.Profile{Compute: int(info.SliceCount), Memory: int(placements[0].Size), SMs: int(info.MultiprocessorCount), MiB: int(info.MemorySizeMB), Media: media}
	for _, placement := range placements {
		p.Starts = append(p.Starts, int(placement.Start))
	}
	slices.Sort(p.Starts)
	return p
}

// addProfile adds a profile to the model, and raises the model's numbers of compute and memory slices to what the profile needs.
func (d *Device) addProfile(p mig.Profile) {
	d.model.Profiles = append(d.model.Profiles, p)
	d.model.Compute = max(d.model.Compute, p.Compute)
	d.model.Memory = max(d.model.Memory, p.Starts[len(p.Starts)-1]+p.Memory)
}

// nameProfiles sets the names of all profiles, such as 1g.18gb, which depend on the number of memory slices of the GPU.
func (d *Device) nameProfiles(infos []nvml.GpuInstanceProfileInfo, total uint64) error {
	if d.model.Memory < 1 || d.model.Memory > 8 {
		return fmt.Errorf("unsupported number of memory slices: %d", d.model.Memory)
	}
	for i, info := range infos {
		p := &d.model.Profiles[i]
		p.MemoryGB = profileGigabytes(total, p.Memory, d.model.Memory)
		p.Name = fmt.Sprintf("%dg.%dgb", p.Compute, p.MemoryGB)
		if p.Media {
			p.Name += "+me"
		}
		d.infos[p] = info
	}
	return nil
}

// profileGigabytes returns the memory in the name of a profile with part of the GPU's memory slices. The GPU's memory is rounded up to
// whole GiB first: an H200 with 140.4 GiB has 141, and half of it is 71.
func profileGigabytes(total uint64, part, of int) int {
	whole := math.Ceil(float64(total) / (1 << 30))
	return int(math.Round(whole * float64(part) / float64(of)))
}
