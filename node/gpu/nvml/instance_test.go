package nvml

import (
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

// withInstances returns a device in MIG mode with instances at two of three indexes. modify changes the second each time it is found.
func withInstances(modify func(attempt int, instance *mock.Device) nvml.Return) *mock.Device {
	d, attempts := device("GPU-a"), 0
	d.GetMigModeFunc = func() (int, int, nvml.Return) { return nvml.DEVICE_MIG_ENABLE, 1, nvml.SUCCESS }
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 3, nvml.SUCCESS }
	d.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i == 0 {
			return nil, nvml.ERROR_NOT_FOUND
		}
		part, r := busy(instance([]string{"", "MIG-1", "MIG-2"}[i], "NVIDIA A100-SXM4-80GB MIG 1g.10gb"), []uint32{uint32(i)}, nil), nvml.SUCCESS
		if i == 2 {
			attempts++
			r = modify(attempts, part)
		}
		return part, r
	}
	return d
}

func lost() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST }

// TestInstanceFails: an instance that cannot be read completely is not listed, and the device's list counts as incomplete, so that the
// instance does not count as removed. The device and the other instance have no fault, and the session continues.
func TestInstanceFails(t *testing.T) {
	for name, fail := range map[string]func(*mock.Device) nvml.Return{
		"MIG instance 2": func(*mock.Device) nvml.Return { return nvml.ERROR_TIMEOUT },
		"UUID":           func(i *mock.Device) nvml.Return { i.GetUUIDFunc = lost; return nvml.SUCCESS },
		"name":           func(i *mock.Device) nvml.Return { i.GetNameFunc = lost; return nvml.SUCCESS },
		"attributes": func(i *mock.Device) nvml.Return {
			i.GetAttributesFunc = func() (a nvml.DeviceAttributes, r nvml.Return) { return a, nvml.ERROR_UNKNOWN }
			return nvml.SUCCESS
		},
		"GPU instance": func(i *mock.Device) nvml.Return {
			i.GetGpuInstanceIdFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
			return nvml.SUCCESS
		},
		"compute instance": func(i *mock.Device) nvml.Return {
			i.GetComputeInstanceIdFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
			return nvml.SUCCESS
		},
		"0 SMs": func(i *mock.Device) nvml.Return {
			i.GetAttributesFunc = func() (a nvml.DeviceAttributes, r nvml.Return) { return a, nvml.SUCCESS }
			return nvml.SUCCESS
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := library(withInstances(func(_ int, i *mock.Device) nvml.Return { return fail(i) }))
			s := New(l)
			d := list(t, s, 1)[0]
			if d.Fault != "" || !strings.Contains(d.Incomplete, name) || len(d.Instances) != 1 || d.Instances[0].UUID != "MIG-1" || !d.MIG {
				t.Errorf("got %+v", d)
			}
			list(t, s, 1)
			checkCalls(t, l, 1, 0, 1)
		})
	}
}

// TestInstanceCountFails: if the number of instances cannot be read, none is listed, and the list is incomplete.
func TestInstanceCountFails(t *testing.T) {
	d := withInstances(nil)
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
	if d := list(t, New(library(d)), 1)[0]; d.Incomplete == "" || d.Fault != "" || !d.MIG {
		t.Errorf("%+v", d)
	}
}

// TestInstanceReplaced: if an instance is replaced by another one while it is read, the other one is listed.
func TestInstanceReplaced(t *testing.T) {
	s := New(library(withInstances(func(attempt int, i *mock.Device) nvml.Return {
		if attempt == 1 {
			i.GetAttributesFunc = func() (a nvml.DeviceAttributes, r nvml.Return) { return a, nvml.ERROR_INVALID_ARGUMENT }
		} else {
			i.GetUUIDFunc = func() (string, nvml.Return) { return "MIG-3", nvml.SUCCESS }
		}
		return nvml.SUCCESS
	})))
	if d := list(t, s, 1)[0]; d.Fault != "" || d.Incomplete != "" || len(d.Instances) != 2 || d.Instances[1].UUID != "MIG-3" {
		t.Errorf("%+v", d)
	}
}

// TestInstanceRemoved: an instance that is removed while it is read is not listed, and the list is complete.
func TestInstanceRemoved(t *testing.T) {
	for name, answer := range map[string]nvml.Return{"not found": nvml.ERROR_NOT_FOUND, "invalid": nvml.ERROR_INVALID_ARGUMENT} {
		t.Run(name, func(t *testing.T) {
			s := New(library(withInstances(func(attempt int, i *mock.Device) nvml.Return {
				if attempt > 1 {
					return answer
				}
				i.GetUUIDFunc = lost
				return nvml.SUCCESS
			})))
			devices, err := s.Devices()
			if err != nil || devices[0].Fault+devices[0].Incomplete != "" || len(devices[0].Instances) != 1 {
				t.Errorf("got %+v, %v", devices, err)
			}
		})
	}
}

// TestProcessesOfInstanceFail: if the processes of one instance cannot be listed, those of others are returned with the error.
func TestProcessesOfInstanceFail(t *testing.T) {
	l := library(withInstances(func(int, *mock.Device) nvml.Return { return nvml.ERROR_TIMEOUT }))
	if found, err := New(l).Processes(); err == nil || len(found) != 1 || found[0].Slice != "MIG-1" {
		t.Errorf("got %+v, %v", found, err)
	}
	checkCalls(t, l, 1, 0, 1)
}
