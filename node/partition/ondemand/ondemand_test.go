package ondemand

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/partition"
	fakemig "github.com/gshare-dev/gshare/test/fake/mig"
	"github.com/gshare-dev/gshare/vgpu/mig"
)

// driver is a gpu.Source of a fake GPU with its instances.
type driver struct {
	*fakemig.GPU
	processes []gpu.Process
}

func (d driver) Devices() ([]gpu.Device, error) {
	device := gpu.Device{UUID: "GPU-a", Model: "A100", SMs: 108, Memory: 80 << 30, MIG: true}
	found, err := d.GPU.Instances()
	for _, i := range found {
		device.Instances = append(device.Instances, gpu.Instance{UUID: i.UUID, Profile: i.Profile.Name, SMs: i.Profile.SMs, Memory: 9 << 30})
	}
	return []gpu.Device{device}, err
}

func (d driver) Processes() ([]gpu.Process, error) { return slices.Clone(d.processes), nil }

// newSource returns the opened source of a new agent, whose containers use the given placements.
func newSource(t *testing.T, d driver, journal string, used []string, profiles ...string) *Source {
	t.Helper()
	s := New(d, []GPU{{UUID: "GPU-a", Profiles: profiles, Open: func() (*partition.Manager, *mig.Model, error) {
		m, err := partition.Open(partition.Config{Device: d.GPU, UUID: "GPU-a", BootID: "b", Store: partition.File(journal)})
		return m, d.Model(), err
	}}})
	s.SetUsed(used)
	<-s.Open(t.Context(), time.Millisecond, func(string, error) {})
	return s
}

func newDriver(t *testing.T) driver {
	t.Helper()
	m, err := mig.ModelNamed("A100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	return driver{GPU: fakemig.New("GPU-a", m)}
}

// ensure waits for one attempt to create the instance of a placement, and returns its error.
func (s *Source) ensure(t *testing.T, id string) error {
	t.Helper()
	if s.Ensure(id) == nil {
		return nil
	}
	for end := time.Now().Add(time.Minute); !s.isDone(id); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("timed out waiting for the instance to be created")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.instances[id].err
}

// isDone reports whether no instance of a placement is being created.
func (s *Source) isDone(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.instances[id].done
}

// offered returns the IDs of the slices that the GPU offers.
func offered(t *testing.T, s *Source) (ids []string) {
	t.Helper()
	devices, err := s.Devices()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range devices[0].Instances {
		ids = append(ids, i.UUID)
	}
	return ids
}

// TestOffers: the source offers placements and the instances of others, but not the instances that gshare created.
func TestOffers(t *testing.T) {
	d := newDriver(t)
	big, _ := d.Model().Profile("3g.40gb")
	if err := d.CreateForeign(mig.Instance{Profile: big, Start: 4}, 3); err != nil {
		t.Fatal(err)
	}
	s := newSource(t, d, filepath.Join(t.TempDir(), "j"), nil, "2g.20gb", "3g.40gb")
	want := []string{"MIG-GPU-a-0-0", "a.c2m2.0", "a.c2m2.2", "a.c3m4.0"}
	if diff := cmp.Diff(want, offered(t, s)); diff != "" {
		t.Error(diff)
	}
	if err := s.ensure(t, "a.c2m2.2"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, offered(t, s)); diff != "" {
		t.Errorf("with an instance: %s", diff)
	}
	if err := s.Ensure("MIG-GPU-a-0-0"); err != nil || s.UUID("MIG-GPU-a-0-0") != "MIG-GPU-a-0-0" {
		t.Errorf("instance of others: %v", err)
	}
	uuid := s.UUID("a.c2m2.2")
	s.Source = driver{d.GPU, []gpu.Process{{PID: 1, Slice: uuid}, {PID: 2, Slice: "MIG-GPU-a-0-0"}}}
	processes, _ := s.Processes()
	if diff := cmp.Diff([]gpu.Process{{PID: 1, Slice: "a.c2m2.2"}, {PID: 2, Slice: "MIG-GPU-a-0-0"}}, processes); diff != "" {
		t.Error(diff)
	}
	if listed, ok := s.DeviceOf("a.c2m2.2"); !ok || !slices.ContainsFunc(listed.Instances, func(i gpu.Instance) bool { return i.UUID == uuid }) {
		t.Errorf("%+v", listed)
	}
}

// TestHungDriver: no call waits for a driver that hangs.
func TestHungDriver(t *testing.T) {
	d := newDriver(t)
	s := newSource(t, d, filepath.Join(t.TempDir(), "j"), nil)
	hang, began := make(chan struct{}), make(chan struct{})
	d.Fail(1, fakemig.Fault{Hang: hang, Began: began})
	if err := s.Ensure("a.c1m1.6"); !errors.Is(err, ErrCreating) {
		t.Fatal(err)
	}
	<-began
	for range 3 {
		if err := s.Ensure("a.c1m1.6"); !errors.Is(err, ErrCreating) {
			t.Error(err)
		}
	}
	s.SetUsed(nil)
	close(hang)
	if err := s.ensure(t, "a.c1m1.6"); err != nil {
		t.Error(err)
	}
}

// TestCreationFails: Ensure returns the error of the last attempt and tries again.
func TestCreationFails(t *testing.T) {
	d := newDriver(t)
	s := newSource(t, d, filepath.Join(t.TempDir(), "j"), nil)
	broken := errors.New("broken")
	d.Fail(1, fakemig.Fault{Err: broken})
	for end := time.Now().Add(time.Minute); !errors.Is(s.Ensure("a.c7m8.0"), broken); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("timed out waiting for the error")
		}
	}
	if err := s.ensure(t, "a.c7m8.0"); err != nil {
		t.Error(err)
	}
}

// TestListFails: an instance that was created while the devices could not be listed can be obtained later.
func TestListFails(t *testing.T) {
	d := newDriver(t)
	s := newSource(t, d, filepath.Join(t.TempDir(), "j"), nil)
	unlistable := errors.New("unlistable")
	d.Fail(4, fakemig.Fault{Err: unlistable}) // after a list, two steps, and a list
	for end := time.Now().Add(time.Minute); !errors.Is(s.Ensure("a.c7m8.0"), unlistable); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("timed out waiting for the error")
		}
	}
	if err := s.ensure(t, "a.c7m8.0"); err != nil || len(d.Steps()) != 2 {
		t.Errorf("%v after %q", err, d.Steps())
	}
	d.Fail(1, fakemig.Fault{Err: unlistable}) // the list for the instance, after that for the journal: both are repeated
	again := newSource(t, d, filepath.Join(t.TempDir(), "of others"), []string{"a.c7m8.0"})
	if listed, ok := again.DeviceOf("a.c7m8.0"); !ok || again.UUID("a.c7m8.0") != s.UUID("a.c7m8.0") {
		t.Errorf("%+v, %v", listed, ok)
	}
}

// TestNewInstanceUnlisted: no container gets an instance before the driver lists it with its IDs.
func TestNewInstanceUnlisted(t *testing.T) {
	d, file := newDriver(t), filepath.Join(t.TempDir(), "j")
	s := newSource(t, d, file, nil)
	s.Source = changed{d, hideInstances}
	if err := s.ensure(t, "a.c1m1.6"); !errors.Is(err, errUnlisted) || s.UUID("a.c1m1.6") != "" {
		t.Errorf("got %v, UUID %q", err, s.UUID("a.c1m1.6"))
	}
	s.waitUntilReleased(t)
	s.Source = changed{d, func(d *gpu.Device) { d.Fault = "Xid 79" }} // and yet lists its instances
	if err := s.ensure(t, "a.c1m1.6"); err != nil || len(d.Steps()) != 2 {
		t.Errorf("%v after %q", err, d.Steps())
	}
	again := New(changed{d, hideInstances}, s.configs())
	again.SetUsed([]string{"a.c1m1.6"})
	<-again.Open(t.Context(), time.Millisecond, func(string, error) {})
	if err := again.Ensure("a.c1m1.6"); !errors.Is(err, errUnlisted) {
		t.Errorf("after a restart: %v", err)
	}
	again.Source = d
	offered(t, again)
	if err := again.Ensure("a.c1m1.6"); err != nil {
		t.Errorf("after it was listed: %v", err)
	}
}

// configs returns the configurations of the GPUs.
func (s *Source) configs() (gpus []GPU) {
	for _, g := range s.devices {
		gpus = append(gpus, g.GPU)
	}
	return gpus
}

// TestReset: an instance that disappeared in a reset is created again.
func TestReset(t *testing.T) {
	d := newDriver(t)
	s := newSource(t, d, filepath.Join(t.TempDir(), "j"), nil)
	for range 2 {
		if err := s.ensure(t, "a.c3m4.4"); err != nil {
			t.Fatal(err)
		}
		s.SetUsed([]string{"a.c3m4.4"})
		checkInstances(t, s, d, map[string]string{"a.c3m4.4": s.UUID("a.c3m4.4")})
		d.Reboot()
		offered(t, s)
	}
}

// TestSequences starts and ends pods and agents at random. A pod's instance is never removed nor given to another; a placement is refused
// only if one that is in use overlaps it; the journal has all instances that exist; what is offered never changes.
func TestSequences(t *testing.T) {
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 7))
			d := newDriver(t)
			journal := filepath.Join(t.TempDir(), "j")
			s := newSource(t, d, journal, nil)
			all := offered(t, s)
			held := map[string]string{} // UUIDs by placement
			for range 60 {
				switch id := all[random.IntN(len(all))]; {
				case random.IntN(12) == 0:
					s = newSource(t, d, journal, slices.Collect(maps.Keys(held)))
				case held[id] != "":
					delete(held, id)
				default:
					err := s.ensure(t, id)
					if blocked := s.blocked(held, id); blocked != (err != nil) {
						t.Fatalf("%s beside %v: %v", id, held, err)
					}
					if err == nil {
						held[id] = s.UUID(id)
					}
				}
				s.SetUsed(slices.Collect(maps.Keys(held)))
				s.waitUntilReleased(t)
				checkInstances(t, s, d, held)
				if diff := cmp.Diff(all, offered(t, s)); diff != "" {
					t.Fatal(diff)
				}
			}
		})
	}
}

// waitUntilReleased waits until unused instances have been released. A request before that would be refused and repeated.
func (s *Source) waitUntilReleased(t *testing.T) {
	t.Helper()
	for _, g := range s.devices {
		for end := time.Now().Add(time.Minute); g.manager.HeldCount() != s.instanceCount(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("timed out waiting for an unused instance to be released")
			}
		}
	}
}

// instanceCount returns the number of instances that are not released.
func (s *Source) instanceCount() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range s.instances {
		if i.err == nil {
			n++
		}
	}
	return n
}

// blocked reports whether a placement overlaps one that is in use.
func (s *Source) blocked(held map[string]string, id string) bool {
	at, _ := s.devices[0].placementByID(id)
	for other := range held {
		if o, _ := s.devices[0].placementByID(other); memorySlices(o)&memorySlices(at) != 0 {
			return true
		}
	}
	return false
}

// checkInstances checks that the instances in use exist at their placements.
func checkInstances(t *testing.T, s *Source, d driver, held map[string]string) {
	t.Helper()
	found, err := d.GPU.Instances()
	if err != nil {
		t.Fatal(err)
	}
	for id, uuid := range held {
		at, _ := s.devices[0].placementByID(id)
		if !slices.ContainsFunc(found, func(i partition.Instance) bool { return i.UUID == uuid && i.Instance == at }) {
			t.Fatalf("%s of %s does not exist: %v", uuid, id, fmt.Sprint(found))
		}
	}
}
