package ondemand

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/node/gpu"
	fakemig "github.com/gshare-dev/gshare/test/fake/mig"
	"github.com/gshare-dev/gshare/vgpu/mig"
)

// changed is a driver with a modified list of devices.
type changed struct {
	driver
	change func(*gpu.Device)
}

func (c changed) Devices() ([]gpu.Device, error) {
	devices, err := c.driver.Devices()
	c.change(&devices[0])
	return devices, err
}

// hideInstances removes the instances from a device.
func hideInstances(d *gpu.Device) { d.Instances = nil }

// TestInstanceUnlisted: an instance that the driver does not list stays with its container, and is released when that has ended.
func TestInstanceUnlisted(t *testing.T) {
	d := newDriver(t)
	s := newSource(t, d, filepath.Join(t.TempDir(), "j"), nil)
	if err := s.ensure(t, "a.c1m1.6"); err != nil {
		t.Fatal(err)
	}
	s.SetUsed([]string{"a.c1m1.6"})
	uuid := s.UUID("a.c1m1.6")
	s.Source = changed{d, hideInstances}
	offered(t, s)
	if _, ok := s.DeviceOf("a.c1m1.6"); !ok || s.UUID("a.c1m1.6") != uuid {
		t.Errorf("%q, before %q; listed %v", s.UUID("a.c1m1.6"), uuid, ok)
	}
	s.Source = d
	s.SetUsed(nil)
	s.waitUntilReleased(t)
	if err := s.ensure(t, "a.c7m8.0"); err != nil {
		t.Errorf("overlapping an unused instance: %v", err)
	}
}

// TestReusedUUID: an instance with the UUID of an earlier one at another placement is not the earlier one.
func TestReusedUUID(t *testing.T) {
	d := newDriver(t)
	s := newSource(t, d, filepath.Join(t.TempDir(), "j"), nil)
	if err := s.ensure(t, "a.c3m4.4"); err != nil {
		t.Fatal(err)
	}
	uuid := s.UUID("a.c3m4.4")
	d.Reboot()
	if at, _ := s.devices[0].placementByID("a.c3m4.0"); d.CreateForeign(at, 3) != nil {
		t.Fatal("failed to create an instance")
	}
	devices, _ := s.Devices()
	if found := devices[0].Instances[0].UUID; found != uuid || s.UUID("a.c3m4.4") != "" {
		t.Errorf("found %q; the placement has %q, before %q", found, s.UUID("a.c3m4.4"), uuid)
	}
}

// TestManagerFails: while the manager cannot list instances, none counts as removed.
func TestManagerFails(t *testing.T) {
	d := newDriver(t)
	s := newSource(t, d, filepath.Join(t.TempDir(), "j"), nil)
	if err := s.ensure(t, "a.c1m1.6"); err != nil {
		t.Fatal(err)
	}
	s.Source = changed{d, hideInstances}
	uuid := s.UUID("a.c1m1.6")
	d.Fail(1, fakemig.Fault{Err: errors.New("unknown")}) // the list of the driver is call 0
	if devices, err := s.Devices(); err != nil || devices[0].Fault == "" || s.UUID("a.c1m1.6") != uuid {
		t.Errorf("%+v, %v; %q is %q", devices, err, uuid, s.UUID("a.c1m1.6"))
	}
}

// TestFaultOfInstance: the fault of an instance is that of its placement, whether it is used or idle, and of no other placement.
func TestFaultOfInstance(t *testing.T) {
	d := newDriver(t)
	s := newSource(t, d, filepath.Join(t.TempDir(), "j"), nil)
	if err := s.ensure(t, "a.c1m1.6"); err != nil {
		t.Fatal(err)
	}
	for _, held := range [][]string{{"a.c1m1.6"}, nil} {
		s.SetUsed(held)
		for _, fault := range []string{"Xid 95", ""} {
			s.Source = changed{d, func(d *gpu.Device) { d.Instances[0].Fault = fault }}
			devices, err := s.Devices()
			for _, i := range devices[0].Instances {
				if want := i.UUID == "a.c1m1.6" && fault != ""; err != nil || (i.Fault == fault && fault != "") != want {
					t.Errorf("held by %q, %s has fault %q: %v", held, i.UUID, i.Fault, err)
				}
			}
		}
	}
}

// TestIncomplete: if the list of instances is incomplete, a placement whose instance is not listed has a fault, and no other slice has. The
// list stays incomplete, as an instance of others may be missing too.
func TestIncomplete(t *testing.T) {
	d := newDriver(t)
	big, _ := d.Model().Profile("3g.40gb")
	if err := d.CreateForeign(mig.Instance{Profile: big, Start: 4}, 3); err != nil {
		t.Fatal(err)
	}
	s := newSource(t, d, filepath.Join(t.TempDir(), "j"), nil, "2g.20gb")
	if err := s.ensure(t, "a.c2m2.2"); err != nil {
		t.Fatal(err)
	}
	d.Fail(2, fakemig.Fault{Err: errors.New("unknown")}) // the step after that which makes the GPU instance
	if err := s.ensure(t, "a.c2m2.0"); err == nil {
		t.Fatal("got no error")
	}
	uuid := s.UUID("a.c2m2.2")
	for _, lost := range []string{uuid, "MIG-GPU-a-0-0"} {
		t.Run("without "+lost, func(t *testing.T) {
			s.Source = changed{d, func(d *gpu.Device) {
				d.Incomplete = "lost"
				d.Instances = slices.DeleteFunc(d.Instances, func(i gpu.Instance) bool { return i.UUID == lost || i.UUID == "" })
			}}
			devices, err := s.Devices()
			if err != nil || devices[0].Fault != "" || devices[0].Incomplete != "lost" {
				t.Errorf("got %+v, %v", devices, err)
			}
			got := map[string]string{}
			for _, i := range devices[0].Instances {
				got[i.UUID] = i.Fault
			}
			want := map[string]string{"a.c2m2.0": "", "a.c2m2.2": "", "MIG-GPU-a-0-0": ""}
			if delete(want, lost); lost == uuid {
				want["a.c2m2.2"] = "lost"
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestProcessOnIdleInstance: a process on an idle instance is listed with its placement. A new agent does so after it has listed the devices.
func TestProcessOnIdleInstance(t *testing.T) {
	d, file := newDriver(t), filepath.Join(t.TempDir(), "j")
	s := newSource(t, d, file, nil)
	if err := s.ensure(t, "a.c1m1.6"); err != nil {
		t.Fatal(err)
	}
	uuid := s.UUID("a.c1m1.6")
	s.SetUsed([]string{"a.c1m1.6"})
	offered(t, s)
	s.SetUsed(nil)
	s.waitUntilReleased(t)
	again := newSource(t, d, file, nil)
	offered(t, again)
	for name, s := range map[string]*Source{"released": s, "of an earlier agent": again} {
		t.Run(name, func(t *testing.T) {
			s.Source = driver{d.GPU, []gpu.Process{{PID: 1, Slice: uuid}, {PID: 2, Slice: ""}, {PID: 3, Slice: "MIG-other"}}}
			got, err := s.Processes()
			want := []gpu.Process{{PID: 1, Slice: "a.c1m1.6"}, {PID: 2, Slice: ""}, {PID: 3, Slice: "MIG-other"}}
			if diff := cmp.Diff(want, got); err != nil || diff != "" || s.UUID("a.c1m1.6") != "" {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}
