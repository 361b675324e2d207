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

// TestInstanceFails: an instance of which the driver does not tell everything is not listed, and the device says that its list lacks
// something: what is missing else counts as gone. The device and the other instance are well, and the session goes on.
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
		"0 SMs": func(i *mock.Device) nvml.Return {
			i.GetAttributesFunc = func() (a nvml.DeviceAttributes, r nvml.Return) { return a, nvml.SUCCESS }
			return nvml.SUCCESS
		},
	} {
		l := library(divided(func(_ int, i *mock.Device) nvml.Return { return spoil(i) }))
		s := New(l)
		d := look(t, s, 1)[0]
		if d.Fault != "" || !strings.Contains(d.Unread, name) || len(d.Instances) != 1 || d.Instances[0].UUID != "MIG-1" || !d.MIG {
			t.Errorf("without %s: %+v", name, d)
		}
		look(t, s, 1)
		calls(t, l, 1, 0, 1)
	}
}

// TestInstancesUncounted: without their number none is listed, and none counts as gone.
func TestInstancesUncounted(t *testing.T) {
	d := divided(nil)
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_UNKNOWN }
	if d := look(t, New(library(d)), 1)[0]; d.Unread == "" || d.Fault != "" || !d.MIG {
		t.Errorf("%+v", d)
	}
}

// TestInstanceMadeAgain: where an instance is removed while it is read, and another made, the other is read.
func TestInstanceMadeAgain(t *testing.T) {
	s := New(library(divided(func(look int, i *mock.Device) nvml.Return {
		if look == 1 {
			i.GetAttributesFunc = func() (a nvml.DeviceAttributes, r nvml.Return) { return a, nvml.ERROR_INVALID_ARGUMENT }
		} else {
			i.GetUUIDFunc = func() (string, nvml.Return) { return "MIG-3", nvml.SUCCESS }
		}
		return nvml.SUCCESS
	})))
	if d := look(t, s, 1)[0]; d.Fault != "" || d.Unread != "" || len(d.Instances) != 2 || d.Instances[1].UUID != "MIG-3" {
		t.Errorf("%+v", d)
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
		if err != nil || devices[0].Fault+devices[0].Unread != "" || len(devices[0].Instances) != 1 {
			t.Errorf("%s: %+v, %v", name, devices, err)
		}
	}
}

// TestProcessesOfInstanceFail: what could not be listed is told, beside what could.
func TestProcessesOfInstanceFail(t *testing.T) {
	l := library(divided(func(int, *mock.Device) nvml.Return { return nvml.ERROR_TIMEOUT }))
	if found, err := New(l).Processes(); err == nil || len(found) != 1 || found[0].Slice != "MIG-1" {
		t.Errorf("%+v, %v", found, err)
	}
	calls(t, l, 1, 0, 1)
}
