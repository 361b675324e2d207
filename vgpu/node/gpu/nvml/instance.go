package nvml

import (
	"regexp"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// instances lists the MIG instances. One that cannot be read is left out.
func instances(handle nvml.Device) (found []gpu.Instance, err error) {
	err = eachInstance(handle, func(instance nvml.Device) {
		if read, ok := readInstance(instance); ok {
			found = append(found, read)
		}
	})
	return found, err
}

// eachInstance visits the MIG instances of a device; most places have none.
func eachInstance(handle nvml.Device, visit func(nvml.Device)) error {
	most, r := handle.GetMaxMigDeviceCount()
	if r != nvml.SUCCESS {
		return failed("MIG instances", r)
	}
	for i := range most {
		if instance, r := handle.GetMigDeviceHandleByIndex(i); r == nvml.SUCCESS {
			visit(instance)
		}
	}
	return nil
}

// profile ends the name of an instance: NVIDIA A100-SXM4-40GB MIG 1g.5gb.
var profile = regexp.MustCompile(`MIG (\S+)$`)

func readInstance(handle nvml.Device) (i gpu.Instance, ok bool) {
	uuid, r := handle.GetUUID()
	if r != nvml.SUCCESS {
		return i, false
	}
	name, r := handle.GetName()
	if r != nvml.SUCCESS {
		return i, false
	}
	attributes, r := handle.GetAttributes()
	if r != nvml.SUCCESS {
		return i, false
	}
	gi, r := handle.GetGpuInstanceId()
	if r != nvml.SUCCESS {
		return i, false
	}
	ci, r := handle.GetComputeInstanceId()
	if r != nvml.SUCCESS {
		return i, false
	}
	match := profile.FindStringSubmatch(name)
	if match == nil || !share.ValidProfile(match[1]) {
		return i, false // a compute instance that is only a part of its GPU instance is no slice
	}
	return gpu.Instance{
		UUID: uuid, Profile: match[1], SMs: int(attributes.MultiprocessorCount), Memory: share.Bytes(attributes.MemorySizeMB) * share.MiB,
		GPU: gi, Compute: ci,
	}, true
}
