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

	fakemig "github.com/gshare-dev/gshare/test/fake/mig"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/partition"
)

// driver lists a fake GPU with its instances.
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

// newSource is that of a new agent, whose containers have the given places.
func newSource(t *testing.T, d driver, journal string, held []string, profiles ...string) *Source {
	t.Helper()
	s := New(d, []GPU{{UUID: "GPU-a", Profiles: profiles, Open: func() (*partition.Manager, *mig.Model, error) {
		m, err := partition.Open(partition.Config{Device: d.GPU, UUID: "GPU-a", Boot: "b", Store: partition.File(journal)})
		return m, d.Model(), err
	}}})
	s.Hold(held)
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

// wait tries to make the instance of a place, and gives what became of that.
func (s *Source) wait(t *testing.T, id string) error {
	t.Helper()
	if s.Make(id) == nil {
		return nil
	}
	for end := time.Now().Add(time.Minute); !s.over(id); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is still being made")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made[id].err
}

// over says that nothing is being done for a place.
func (s *Source) over(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made[id].done
}

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

// TestOffers: places, and what others made; never what gshare made there itself.
func TestOffers(t *testing.T) {
	d := newDriver(t)
	big, _ := d.Model().Profile("3g.40gb")
	if err := d.Strange(mig.Instance{Profile: big, Start: 4}, 3); err != nil {
		t.Fatal(err)
	}
	s := newSource(t, d, filepath.Join(t.TempDir(), "j"), nil, "2g.20gb", "3g.40gb")
	want := []string{"MIG-GPU-a-0-0", "a.c2m2.0", "a.c2m2.2", "a.c3m4.0"}
	if diff := cmp.Diff(want, offered(t, s)); diff != "" {
		t.Error(diff)
	}
	if err := s.wait(t, "a.c2m2.2"); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, offered(t, s)); diff != "" {
		t.Errorf("with an instance: %s", diff)
	}
	if err := s.Make("MIG-GPU-a-0-0"); err != nil || s.UUID("MIG-GPU-a-0-0") != "MIG-GPU-a-0-0" {
		t.Errorf("what is there: %v", err)
	}
	uuid := s.UUID("a.c2m2.2")
	s.Source = driver{d.GPU, []gpu.Process{{PID: 1, Slice: uuid}, {PID: 2, Slice: "MIG-GPU-a-0-0"}}}
	processes, _ := s.Processes()
	if diff := cmp.Diff([]gpu.Process{{PID: 1, Slice: "a.c2m2.2"}, {PID: 2, Slice: "MIG-GPU-a-0-0"}}, processes); diff != "" {
		t.Error(diff)
	}
	if listed, ok := s.Listed("a.c2m2.2"); !ok || !slices.ContainsFunc(listed.Instances, func(i gpu.Instance) bool { return i.UUID == uuid }) {
		t.Errorf("%+v", listed)
	}
}

// TestNobodyWaits: a driver that hangs keeps only its own instance back.
func TestNobodyWaits(t *testing.T) {
	d := newDriver(t)
	s := newSource(t, d, filepath.Join(t.TempDir(), "j"), nil)
	hang, began := make(chan struct{}), make(chan struct{})
	d.Fail(1, fakemig.Fault{Hang: hang, Began: began})
	if err := s.Make("a.c1m1.6"); !errors.Is(err, ErrMaking) {
		t.Fatal(err)
	}
	<-began
	for range 3 {
		if err := s.Make("a.c1m1.6"); !errors.Is(err, ErrMaking) {
			t.Error(err)
		}
	}
	s.Hold(nil)
	close(hang)
	if err := s.wait(t, "a.c1m1.6"); err != nil {
		t.Error(err)
	}
}

// TestFailures: an error is told, and the next one to ask tries again.
func TestFailures(t *testing.T) {
	d := newDriver(t)
	s := newSource(t, d, filepath.Join(t.TempDir(), "j"), nil)
	broken := errors.New("broken")
	d.Fail(1, fakemig.Fault{Err: broken})
	for end := time.Now().Add(time.Minute); !errors.Is(s.Make("a.c7m8.0"), broken); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the error is not told")
		}
	}
	if err := s.wait(t, "a.c7m8.0"); err != nil {
		t.Error(err)
	}
}

// TestListFails: an instance that was made but cannot be found among the devices is kept from nobody.
func TestListFails(t *testing.T) {
	d := newDriver(t)
	s := newSource(t, d, filepath.Join(t.TempDir(), "j"), nil)
	blind := errors.New("blind")
	d.Fail(4, fakemig.Fault{Err: blind}) // after a look, two steps, and a look
	for end := time.Now().Add(time.Minute); !errors.Is(s.Make("a.c7m8.0"), blind); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the error is not told")
		}
	}
	if err := s.wait(t, "a.c7m8.0"); err != nil || len(d.Acts()) != 2 {
		t.Errorf("%v after %q", err, d.Acts())
	}
	d.Fail(1, fakemig.Fault{Err: blind}) // the look for the instance, after that of the journal: both are taken again
	again := newSource(t, d, filepath.Join(t.TempDir(), "of others"), []string{"a.c7m8.0"})
	if listed, ok := again.Listed("a.c7m8.0"); !ok || again.UUID("a.c7m8.0") != s.UUID("a.c7m8.0") {
		t.Errorf("%+v, %v", listed, ok)
	}
}

// TestListLacksNew: nobody gets an instance before it is known how the driver numbers it.
func TestListLacksNew(t *testing.T) {
	d, file := newDriver(t), filepath.Join(t.TempDir(), "j")
	s := newSource(t, d, file, nil)
	s.Source = changed{d, blind}
	if err := s.wait(t, "a.c1m1.6"); !errors.Is(err, errUnlisted) || s.UUID("a.c1m1.6") != "" {
		t.Errorf("%v; it is %q", err, s.UUID("a.c1m1.6"))
	}
	s.settled(t)
	s.Source = changed{d, func(d *gpu.Device) { d.Fault = "Xid 79" }} // which lists its instances
	if err := s.wait(t, "a.c1m1.6"); err != nil || len(d.Acts()) != 2 {
		t.Errorf("%v after %q", err, d.Acts())
	}
	again := New(changed{d, blind}, s.opening())
	again.Hold([]string{"a.c1m1.6"})
	<-again.Open(t.Context(), time.Millisecond, func(string, error) {})
	if err := again.Make("a.c1m1.6"); !errors.Is(err, errUnlisted) {
		t.Errorf("after a restart: %v", err)
	}
	again.Source = d
	offered(t, again)
	if err := again.Make("a.c1m1.6"); err != nil {
		t.Errorf("it is listed: %v", err)
	}
}

// opening is how the GPUs are opened.
func (s *Source) opening() (gpus []GPU) {
	for _, g := range s.gpus {
		gpus = append(gpus, g.GPU)
	}
	return gpus
}

// TestReset: an instance that is gone is made again.
func TestReset(t *testing.T) {
	d := newDriver(t)
	s := newSource(t, d, filepath.Join(t.TempDir(), "j"), nil)
	for range 2 {
		if err := s.wait(t, "a.c3m4.4"); err != nil {
			t.Fatal(err)
		}
		s.Hold([]string{"a.c3m4.4"})
		check(t, s, d, map[string]string{"a.c3m4.4": s.UUID("a.c3m4.4")})
		d.Reboot()
		offered(t, s)
	}
}

// TestSequences lets pods come and go, and agents too. What a pod has is never removed nor given to another; a place is refused
// only where one that is held takes its room; nothing is left over that the journal does not know; what is offered never changes.
func TestSequences(t *testing.T) {
	for seed := range uint64(5) {
		random := rand.New(rand.NewPCG(seed, 7))
		d := newDriver(t)
		journal := filepath.Join(t.TempDir(), "j")
		s := newSource(t, d, journal, nil)
		all := offered(t, s)
		held := map[string]string{} // UUIDs
		for range 60 {
			switch id := all[random.IntN(len(all))]; {
			case random.IntN(12) == 0:
				s = newSource(t, d, journal, slices.Collect(maps.Keys(held)))
			case held[id] != "":
				delete(held, id)
			default:
				err := s.wait(t, id)
				if blocked := s.blocked(held, id); blocked != (err != nil) {
					t.Fatalf("seed %d: %s beside %v: %v", seed, id, held, err)
				}
				if err == nil {
					held[id] = s.UUID(id)
				}
			}
			s.Hold(slices.Collect(maps.Keys(held)))
			s.settled(t)
			check(t, s, d, held)
			if diff := cmp.Diff(all, offered(t, s)); diff != "" {
				t.Fatal(diff)
			}
		}
	}
}

// settled waits until what was released is: a wish that follows at once would be refused, and tried again.
func (s *Source) settled(t *testing.T) {
	t.Helper()
	for _, g := range s.gpus {
		for end := time.Now().Add(time.Minute); g.manager.Holds() != s.done(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("an instance is held for nobody")
			}
		}
	}
}

func (s *Source) done() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.made {
		if m.err == nil {
			n++
		}
	}
	return n
}

func (s *Source) blocked(held map[string]string, id string) bool {
	at, _ := s.gpus[0].find(id)
	for other := range held {
		if o, _ := s.gpus[0].find(other); room(o)&room(at) != 0 {
			return true
		}
	}
	return false
}

func check(t *testing.T, s *Source, d driver, held map[string]string) {
	t.Helper()
	found, err := d.GPU.Instances()
	if err != nil {
		t.Fatal(err)
	}
	for id, uuid := range held {
		at, _ := s.gpus[0].find(id)
		if !slices.ContainsFunc(found, func(i partition.Instance) bool { return i.UUID == uuid && i.Instance == at }) {
			t.Fatalf("%s of %s is gone: %v", uuid, id, fmt.Sprint(found))
		}
	}
}
