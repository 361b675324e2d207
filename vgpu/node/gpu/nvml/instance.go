package nvml

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// instances lists the MIG instances. With an error the list may lack some.
func instances(handle nvml.Device) (found []gpu.Instance, err error) {
	err = eachInstance(handle, func(instance nvml.Device) error {
		read, err := readInstance(instance)
		if err != nil || !share.ValidProfile(read.Profile) { // a compute instance that is only a part of its GPU instance is no slice
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

// eachInstance visits the MIG instances of a device; most places have none. It goes on after errors, and gives all of them.
func eachInstance(handle nvml.Device, visit func(nvml.Device) error) (all error) {
	most, r := handle.GetMaxMigDeviceCount()
	if r != nvml.SUCCESS {
		return failed("MIG instances", r)
	}
	for i := range most {
		all = errors.Join(all, visitInstance(handle, i, visit))
	}
	return all
}

// visitInstance visits the MIG instance of that number. What fails is asked for once more, since its handle may be that of one which
// has gone away meanwhile: then there is none any more, or another.
func visitInstance(handle nvml.Device, number int, visit func(nvml.Device) error) (err error) {
	for range 2 {
		instance, unknown := instanceAt(handle, number)
		if instance == nil {
			return unknown
		}
		if err = visit(instance); err == nil {
			return nil
		}
	}
	return err
}

// instanceAt gives the MIG instance of that number; nil where there is none. After an error it may be there.
func instanceAt(handle nvml.Device, number int) (nvml.Device, error) {
	switch instance, r := handle.GetMigDeviceHandleByIndex(number); r {
	case nvml.SUCCESS:
		return instance, nil
	case nvml.ERROR_NOT_FOUND, nvml.ERROR_INVALID_ARGUMENT:
		return nil, nil
	default:
		return nil, failed(fmt.Sprintf("MIG instance %d", number), r)
	}
}

// profile ends the name of an instance: NVIDIA A100-SXM4-40GB MIG 1g.5gb.
var profile = regexp.MustCompile(`MIG (\S+)$`)

func readInstance(handle nvml.Device) (i gpu.Instance, err error) {
	var r nvml.Return
	if i.UUID, r = handle.GetUUID(); r != nvml.SUCCESS {
		return i, failed("UUID of a MIG instance", r)
	}
	name, r := handle.GetName()
	if r != nvml.SUCCESS {
		return i, failed("name of "+i.UUID, r)
	}
	if match := profile.FindStringSubmatch(name); match != nil {
		i.Profile = match[1]
	}
	attributes, r := handle.GetAttributes()
	if r != nvml.SUCCESS {
		return i, failed("attributes of "+i.UUID, r)
	}
	i.SMs, i.Memory = int(attributes.MultiprocessorCount), share.Bytes(attributes.MemorySizeMB)*share.MiB
	if i.GPU, r = handle.GetGpuInstanceId(); r != nvml.SUCCESS {
		return i, failed("GPU instance of "+i.UUID, r)
	}
	if i.Compute, r = handle.GetComputeInstanceId(); r != nvml.SUCCESS {
		return i, failed("compute instance of "+i.UUID, r)
	}
	return i, nil
}
