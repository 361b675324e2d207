package ondemand

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	fakemig "github.com/gshare-dev/gshare/test/fake/mig"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
)

// changed is a driver whose list is not what is there.
type changed struct {
	driver
	change func(*gpu.Device)
}

func (c changed) Devices() ([]gpu.Device, error) {
	devices, err := c.driver.Devices()
	c.change(&devices[0])
	return devices, err
}

func blind(d *gpu.Device) { d.Instances = nil }

// TestListLacks: what the driver's list lacks stays who has it, and is released when he has ended.
func TestListLacks(t *testing.T) {
	d := newDriver(t)
	s := newSource(t, d, filepath.Join(t.TempDir(), "j"), nil)
	if err := s.wait(t, "a.c1m1.6"); err != nil {
		t.Fatal(err)
	}
	s.Hold([]string{"a.c1m1.6"})
	uuid := s.UUID("a.c1m1.6")
	s.Source = changed{d, blind}
	offered(t, s)
	if _, ok := s.Listed("a.c1m1.6"); !ok || s.UUID("a.c1m1.6") != uuid {
		t.Errorf("%q, before %q; listed %v", s.UUID("a.c1m1.6"), uuid, ok)
	}
	s.Source = d
	s.Hold(nil)
	s.settled(t)
	if err := s.wait(t, "a.c7m8.0"); err != nil {
		t.Errorf("in the room of what nobody has: %v", err)
	}
}

// TestGoneElsewhere: the driver gives UUIDs again, and the instance that has one now is not the one that had it.
func TestGoneElsewhere(t *testing.T) {
	d := newDriver(t)
	s := newSource(t, d, filepath.Join(t.TempDir(), "j"), nil)
	if err := s.wait(t, "a.c3m4.4"); err != nil {
		t.Fatal(err)
	}
	uuid := s.UUID("a.c3m4.4")
	d.Reboot()
	if at, _ := s.gpus[0].find("a.c3m4.0"); d.Strange(at, 3) != nil {
		t.Fatal("it does not fit")
	}
	devices, _ := s.Devices()
	if found := devices[0].Instances[0].UUID; found != uuid || s.UUID("a.c3m4.4") != "" {
		t.Errorf("%q is there, and %q in its place, which was %q", found, s.UUID("a.c3m4.4"), uuid)
	}
}

// TestManagerFails: while the manager cannot look, nothing has gone.
func TestManagerFails(t *testing.T) {
	d := newDriver(t)
	s := newSource(t, d, filepath.Join(t.TempDir(), "j"), nil)
	if err := s.wait(t, "a.c1m1.6"); err != nil {
		t.Fatal(err)
	}
	s.Source = changed{d, blind}
	uuid := s.UUID("a.c1m1.6")
	d.Fail(1, fakemig.Fault{Err: errors.New("unknown")}) // the list of the driver is call 0
	if devices, err := s.Devices(); err != nil || devices[0].Fault == "" || s.UUID("a.c1m1.6") != uuid {
		t.Errorf("%+v, %v; %q is %q", devices, err, uuid, s.UUID("a.c1m1.6"))
	}
}

// TestFaultOfInstance: what has failed is the place of its instance, whether a container has that or it is idle. Others are well, and
// so is the place when its instance is.
func TestFaultOfInstance(t *testing.T) {
	d := newDriver(t)
	s := newSource(t, d, filepath.Join(t.TempDir(), "j"), nil)
	if err := s.wait(t, "a.c1m1.6"); err != nil {
		t.Fatal(err)
	}
	for _, held := range [][]string{{"a.c1m1.6"}, nil} {
		s.Hold(held)
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

// TestUnread: where the driver could not read all instances, a place whose instance is not listed has failed; the other places, and what
// is listed, have not. The list still says that it lacks something: the instance of another may be it.
func TestUnread(t *testing.T) {
	d := newDriver(t)
	big, _ := d.Model().Profile("3g.40gb")
	if err := d.Strange(mig.Instance{Profile: big, Start: 4}, 3); err != nil {
		t.Fatal(err)
	}
	s := newSource(t, d, filepath.Join(t.TempDir(), "j"), nil, "2g.20gb")
	if err := s.wait(t, "a.c2m2.2"); err != nil {
		t.Fatal(err)
	}
	d.Fail(2, fakemig.Fault{Err: errors.New("unknown")}) // the step after that which makes the GPU instance
	if err := s.wait(t, "a.c2m2.0"); err == nil {
		t.Fatal("it is made")
	}
	uuid := s.UUID("a.c2m2.2")
	for _, lost := range []string{uuid, "MIG-GPU-a-0-0"} {
		s.Source = changed{d, func(d *gpu.Device) {
			d.Incomplete = "lost"
			d.Instances = slices.DeleteFunc(d.Instances, func(i gpu.Instance) bool { return i.UUID == lost || i.UUID == "" })
		}}
		devices, err := s.Devices()
		if err != nil || devices[0].Fault != "" || devices[0].Incomplete != "lost" {
			t.Errorf("without %s: %+v, %v", lost, devices, err)
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
			t.Errorf("without %s: %s", lost, diff)
		}
	}
}

// TestStrangerOnIdle: a process on an idle instance is on its place, of which it takes the room. A new agent knows that after a look.
func TestStrangerOnIdle(t *testing.T) {
	d, file := newDriver(t), filepath.Join(t.TempDir(), "j")
	s := newSource(t, d, file, nil)
	if err := s.wait(t, "a.c1m1.6"); err != nil {
		t.Fatal(err)
	}
	uuid := s.UUID("a.c1m1.6")
	s.Hold([]string{"a.c1m1.6"})
	offered(t, s)
	s.Hold(nil)
	s.settled(t)
	again := newSource(t, d, file, nil)
	offered(t, again)
	for name, s := range map[string]*Source{"released": s, "of an earlier agent": again} {
		s.Source = driver{d.GPU, []gpu.Process{{PID: 1, Slice: uuid}, {PID: 2, Slice: ""}, {PID: 3, Slice: "MIG-other"}}}
		got, err := s.Processes()
		want := []gpu.Process{{PID: 1, Slice: "a.c1m1.6"}, {PID: 2, Slice: ""}, {PID: 3, Slice: "MIG-other"}}
		if diff := cmp.Diff(want, got); err != nil || diff != "" || s.UUID("a.c1m1.6") != "" {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}
