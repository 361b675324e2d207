package nvml

import (
	"strings"
	"testing"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"
)

// divided gives a device in MIG mode two instances and a place without one. fails changes the second when it is asked for.
func divided(fails func(look int, instance *mock.Device) nvml.Return) *mock.Device {
	d, looks := device("GPU-a"), 0
	d.GetMigModeFunc = func() (int, int, nvml.Return) { return nvml.DEVICE_MIG_ENABLE, 1, nvml.SUCCESS }
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 3, nvml.SUCCESS }
	d.GetMigDeviceHandleByIndexFunc = func(i int) (nvml.Device, nvml.Return) {
		if i == 0 {
			return nil, nvml.ERROR_NOT_FOUND
		}
		part, r := busy(instance([]string{"", "MIG-1", "MIG-2"}[i], "NVIDIA A100-SXM4-80GB MIG 1g.10gb"), []uint32{uint32(i)}, nil), nvml.SUCCESS
		if i == 2 {
			looks++
			r = fails(looks, part)
		}
		return part, r
	}
	return d
}

func lost() (string, nvml.Return) { return "", nvml.ERROR_GPU_IS_LOST }

// TestInstanceFails: an instance of which the driver does not tell everything is a fault of the device, and not missing: what is missing
// counts as gone.
func TestInstanceFails(t *testing.T) {
	for name, spoil := range map[string]func(*mock.Device) nvml.Return{
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
	} {
		s := New(library(divided(func(_ int, i *mock.Device) nvml.Return { return spoil(i) })))
		devices, err := s.Devices()
		if err != nil || len(devices) != 1 || !strings.Contains(devices[0].Fault, name) || len(devices[0].Instances) != 0 || !devices[0].MIG {
			t.Errorf("without %s: %+v, %v", name, devices, err)
		}
	}
}

// TestInstanceGoes: an instance that is removed while it is read has never been there.
func TestInstanceGoes(t *testing.T) {
	for name, answer := range map[string]nvml.Return{"not found": nvml.ERROR_NOT_FOUND, "invalid": nvml.ERROR_INVALID_ARGUMENT} {
		s := New(library(divided(func(look int, i *mock.Device) nvml.Return {
			if look > 1 {
				return answer
			}
			i.GetUUIDFunc = lost
			return nvml.SUCCESS
		})))
		devices, err := s.Devices()
		if err != nil || devices[0].Fault != "" || len(devices[0].Instances) != 1 {
			t.Errorf("%s: %+v, %v", name, devices, err)
		}
	}
}

// TestProcessesOfInstanceFail: what could not be listed is told, beside what could.
func TestProcessesOfInstanceFail(t *testing.T) {
	s := New(library(divided(func(int, *mock.Device) nvml.Return { return nvml.ERROR_TIMEOUT })))
	if found, err := s.Processes(); err == nil || len(found) != 1 || found[0].Slice != "MIG-1" {
		t.Errorf("%+v, %v", found, err)
	}
}
