package nvml

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// instances lists the MIG instances. With an error there is no list: one that lacks something would be taken for all there is.
func instances(handle nvml.Device) (found []gpu.Instance, err error) {
	err = eachInstance(handle, func(instance nvml.Device) error {
		read, err := readInstance(instance)
		if err == nil && share.ValidProfile(read.Profile) { // a compute instance that is only a part of its GPU instance is no slice
			found = append(found, read)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// eachInstance visits the MIG instances of a device; most places have none. It goes on after errors, and gives all of them. One that
// goes away while it is visited is none.
func eachInstance(handle nvml.Device, visit func(nvml.Device) error) (all error) {
	most, r := handle.GetMaxMigDeviceCount()
	if r != nvml.SUCCESS {
		return failed("MIG instances", r)
	}
	for i := range most {
		instance, err := instanceAt(handle, i)
		if instance == nil {
			all = errors.Join(all, err)
			continue
		}
		if err := visit(instance); err != nil {
			if now, unknown := instanceAt(handle, i); now != nil || unknown != nil {
				all = errors.Join(all, err)
			}
		}
	}
	return all
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
