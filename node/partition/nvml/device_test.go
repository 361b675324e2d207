package nvml_test

import (
	"errors"
	"strings"
	"testing"

	library "github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock"

	"github.com/gshare-dev/gshare/node/partition"
	"github.com/gshare-dev/gshare/node/partition/nvml"
	fakemig "github.com/gshare-dev/gshare/test/fake/mig"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// changed returns a library with a GPU whose calls are changed.
func changed(t *testing.T, g *fakemig.GPU, change func(d *mock.Device)) library.Interface {
	handle, r := g.NVML().DeviceGetHandleByUUID("GPU-a")
	if r != library.SUCCESS {
		t.Fatal(r)
	}
	d := handle.(*mock.Device)
	change(d)
	return &mock.Interface{DeviceGetHandleByUUIDFunc: func(string) (library.Device, library.Return) { return d, library.SUCCESS }}
}

func newGPU(t *testing.T) *fakemig.GPU {
	m, err := mig.ModelNamed("H100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	return fakemig.New("GPU-a", m)
}

// TestNotInMIGMode: Find refuses GPUs that are not in MIG mode, and that do not exist.
func TestNotInMIGMode(t *testing.T) {
	off := changed(t, newGPU(t), func(d *mock.Device) {
		d.GetMigModeFunc = func() (int, int, library.Return) {
			return library.DEVICE_MIG_DISABLE, library.DEVICE_MIG_ENABLE, library.SUCCESS
		}
	})
	never := changed(t, newGPU(t), func(d *mock.Device) {
		d.GetMigModeFunc = func() (int, int, library.Return) { return 0, 0, library.ERROR_NOT_SUPPORTED }
	})
	unknown := changed(t, newGPU(t), func(d *mock.Device) {
		d.GetMigModeFunc = func() (int, int, library.Return) { return 0, 0, library.ERROR_UNKNOWN }
	})
	if _, err := nvml.Find(unknown, "GPU-a"); err == nil || errors.Is(err, partition.ErrNoMIG) {
		t.Errorf("unknown MIG mode: %v", err)
	}
	for name, l := range map[string]library.Interface{"off": off, "never": never} {
		t.Run(name, func(t *testing.T) {
			if _, err := nvml.Find(l, "GPU-a"); !errors.Is(err, partition.ErrNoMIG) {
				t.Errorf("got error %v, want ErrNoMIG", err)
			}
		})
	}
	if _, err := nvml.Find(newGPU(t).NVML(), "GPU-b"); !errors.Is(err, partition.ErrNoGPU) {
		t.Errorf("missing GPU: %v", err)
	}
}

// TestFindFails: a GPU whose profiles cannot all be read is not used, as instances of the others would not be listed.
func TestFindFails(t *testing.T) {
	refused := 0
	for call := 0; ; call++ {
		g := newGPU(t)
		g.Fail(call, fakemig.Fault{Err: errors.New("unknown")})
		d, err := nvml.Find(g.NVML(), "GPU-a")
		if err == nil && len(d.Model().Profiles) != len(g.Model().Profiles) {
			t.Fatalf("without call %d: %+v", call, d.Model())
		}
		if err == nil {
			break // there is no such call
		}
		refused++
	}
	if refused < 15 {
		t.Errorf("%d calls could fail", refused)
	}
}

// TestListFails: if any instance cannot be read, Instances returns no list, as a missing instance would count as free.
func TestListFails(t *testing.T) {
	g := newGPU(t)
	p, _ := g.Model().Profile("2g.20gb")
	if err := g.CreateForeign(mig.Instance{Profile: p, Start: 2}, 2); err != nil {
		t.Fatal(err)
	}
	d, err := nvml.Find(g.NVML(), "GPU-a")
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	for failed := true; failed; calls++ {
		g.Fail(calls, fakemig.Fault{Err: errors.New("unknown")})
		found, err := d.Instances()
		if failed = err != nil; failed && found != nil {
			t.Fatalf("%+v with an error at call %d", found, calls)
		}
		if !failed && (len(found) != 1 || found[0].UUID == "") {
			t.Fatalf("%+v", found)
		}
	}
	if calls < 8 {
		t.Errorf("%d calls could fail", calls)
	}
}

// TestOtherProfiles: a GPU may have profiles that package mig does not describe, but no instances of them.
func TestOtherProfiles(t *testing.T) {
	other := library.GpuInstanceProfileInfo{Id: 99, SliceCount: 1, InstanceCount: 4}
	var made []library.GpuInstance
	g := newGPU(t)
	l := changed(t, g, func(d *mock.Device) {
		info, list := d.GetGpuInstanceProfileInfoFunc, d.GetGpuInstancesFunc
		d.GetGpuInstanceProfileInfoFunc = func(n int) (library.GpuInstanceProfileInfo, library.Return) {
			if n == library.GPU_INSTANCE_PROFILE_1_SLICE_GFX {
				return other, library.SUCCESS
			}
			return info(n)
		}
		d.GetGpuInstancesFunc = func(kind *library.GpuInstanceProfileInfo) ([]library.GpuInstance, library.Return) {
			if kind.Id == other.Id {
				return made, library.SUCCESS
			}
			return list(kind)
		}
	})
	d, err := nvml.Find(l, "GPU-a")
	if err != nil || len(d.Model().Profiles) != len(g.Model().Profiles) {
		t.Fatalf("%+v, %v", d, err)
	}
	if found, err := d.Instances(); err != nil || len(found) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
	made = []library.GpuInstance{&mock.GpuInstance{GetInfoFunc: func() (library.GpuInstanceInfo, library.Return) {
		return library.GpuInstanceInfo{ProfileId: other.Id}, library.SUCCESS
	}}}
	if found, err := d.Instances(); err == nil || !strings.Contains(err.Error(), "99") {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestProfileOfNone: profiles of which no instance can exist are not listed, for which go-nvml would panic.
func TestProfileOfNone(t *testing.T) {
	l := changed(t, newGPU(t), func(d *mock.Device) {
		info := d.GetGpuInstanceProfileInfoFunc
		d.GetGpuInstanceProfileInfoFunc = func(n int) (library.GpuInstanceProfileInfo, library.Return) {
			kind, r := info(n)
			kind.InstanceCount = 0
			return kind, r
		}
	})
	d, err := nvml.Find(l, "GPU-a")
	if err != nil {
		t.Fatal(err)
	}
	if found, err := d.Instances(); err != nil || len(found) != 0 {
		t.Errorf("%+v, %v", found, err)
	}
}

// TestTooManySlices: a GPU with more than eight memory slices is refused.
func TestTooManySlices(t *testing.T) {
	l := changed(t, newGPU(t), func(d *mock.Device) {
		d.GetGpuInstancePossiblePlacementsFunc = func(*library.GpuInstanceProfileInfo) ([]library.GpuInstancePlacement, library.Return) {
			return []library.GpuInstancePlacement{{Start: 8, Size: 8}}, library.SUCCESS
		}
	})
	if d, err := nvml.Find(l, "GPU-a"); err == nil {
		t.Errorf("got %+v for a GPU with 16 memory slices", d.Model())
	}
}

// TestPartialComputeInstances: a GPU instance that several compute instances share has no UUID.
func TestPartialComputeInstances(t *testing.T) {
	g := newGPU(t)
	d, err := nvml.Find(g.NVML(), "GPU-a")
	if err != nil {
		t.Fatal(err)
	}
	p, _ := d.Model().Profile("3g.40gb")
	at := mig.Instance{Profile: p, Start: 4}
	if err := g.CreateForeign(at, 1, 2); err != nil {
		t.Fatal(err)
	}
	found, err := d.Instances()
	if want := (partition.Instance{Instance: at, ComputeInstances: 2}); err != nil || len(found) != 1 || found[0] != want {
		t.Errorf("%+v, %v; want %+v", found, err, want)
	}
	if err := d.Apply(geometry.Step{Action: geometry.DestroyCompute, Instance: at}); !errors.Is(err, partition.ErrNotFound) {
		t.Errorf("got error %v, want ErrNotFound", err)
	}
}
