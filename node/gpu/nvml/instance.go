package nvml

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// listInstances returns the MIG instances of a GPU. If it returns an error, some instances may be missing.
func listInstances(handle nvml.Device) (found []gpu.Instance, err error) {
	err = eachInstance(handle, func(instance nvml.Device) error {
		read, err := readInstance(instance)
		if err != nil || !share.ValidProfile(read.Profile) { // compute instances that are only part of their GPU instance are not used
			return err
		}
		if err := read.Validate(); err != nil {
			return err
		}
		found = append(found, read)
		return nil
	})
	return found, err
}

// eachInstance calls visit for each MIG instance of a GPU. It does not stop at errors, and returns them joined.
func eachInstance(handle nvml.Device, visit func(nvml.Device) error) (all error) {
	count, r := handle.GetMaxMigDeviceCount()
	if r != nvml.SUCCESS {
		return callError("count MIG instances", r)
	}
	for i := range count {
		all = errors.Join(all, visitInstance(handle, i, visit))
	}
	return all
}

// visitInstance calls visit for the MIG instance at an index, if there is one. It retries once with a new handle, since the instance may
// have been replaced meanwhile.
func visitInstance(handle nvml.Device, index int, visit func(nvml.Device) error) (err error) {
	for range 2 {
		instance, findErr := instanceAt(handle, index)
		if instance == nil {
			return findErr
		}
		if err = visit(instance); err == nil {
			return nil
		}
	}
	return err
}

// instanceAt returns the MIG instance at an index, or nil if there is none. If it returns an error, it is not known whether there is one.
func instanceAt(handle nvml.Device, index int) (nvml.Device, error) {
	switch instance, r := handle.GetMigDeviceHandleByIndex(index); r {
	case nvml.SUCCESS:
		return instance, nil
	case nvml.ERROR_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT:
		return nil, nil
	default:
		return nil, callError(fmt.Sprintf("find MIG instance %d", index), r)
	}
}

// profilePattern matches the MIG profile at the end of a device name such as NVIDIA A100-SXM4-40GB MIG 1g.5gb.
var profilePattern = regexp.MustCompile(`MIG (\S+)$`)

// readInstance reads the properties of a MIG instance.
func readInstance(handle nvml.Device) (i gpu.Instance, err error) {
	var r nvml.Return
	if i.UUID, r = handle.GetUUID(); r != nvml.SUCCESS {
		return i, callError("read UUID of a MIG instance", r)
	}
	name, r := handle.GetName()
	if r != nvml.SUCCESS {
		return i, callError("read name of "+i.UUID, r)
	}
	if match := profilePattern.FindStringSubmatch(name); match != nil {
		i.Profile = match[1]
	}
	attributes, r := handle.GetAttributes()
	if r != nvml.SUCCESS {
		return i, callError("read attributes of "+i.UUID, r)
	}
	i.SMs, i.Memory = int(attributes.MultiprocessorCount), share.Bytes(attributes.MemorySizeMB)*share.MiB
	if i.GPU, r = handle.GetGpuInstanceId(); r != nvml.SUCCESS {
		return i, callError("read GPU instance of "+i.UUID, r)
	}
	if i.Compute, r = handle.GetComputeInstanceId(); r != nvml.SUCCESS {
		return i, callError("read compute instance of "+i.UUID, r)
	}
	return i, nil
}
