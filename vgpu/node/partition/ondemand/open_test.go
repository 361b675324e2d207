package ondemand

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/node/gpu"
	"github.com/gshare-dev/gshare/vgpu/node/partition"
)

// TestOpen: a GPU whose driver hangs or is absent is closed, and keeps no other waiting. What containers have on it is held before
// anybody can ask for the room.
func TestOpen(t *testing.T) {
	d, file := newDriver(t), filepath.Join(t.TempDir(), "j")
	before := newSource(t, d, file, nil)
	if err := before.wait(t, "a.c1m1.6"); err != nil {
		t.Fatal(err)
	}
	hang, absent, told := make(chan struct{}), errors.New("absent"), make(chan string, 9)
	tries, other, disk := 0, newDriver(t), journal{}
	s := New(d, []GPU{
		{UUID: "GPU-a", Open: func() (*partition.Manager, *mig.Model, error) {
			<-hang
			m, err := partition.Open(partition.Config{Device: d.GPU, UUID: "GPU-a", Boot: "b", Store: partition.File(file)})
			return m, d.Model(), err
		}},
		{UUID: "GPU-b", Open: func() (*partition.Manager, *mig.Model, error) {
			if tries++; tries < 5 {
				return nil, nil, absent
			}
			m, err := partition.Open(partition.Config{Device: other.GPU, UUID: "GPU-b", Boot: "b", Store: &disk})
			return m, other.Model(), err
		}},
	})
	s.Hold([]string{"a.c1m1.6"})
	opened := s.Open(t.Context(), time.Millisecond, func(uuid string, err error) { told <- fmt.Sprint(uuid, " ", err) })
	for _, want := range []string{"GPU-b absent", "GPU-b <nil>"} {
		if got := <-told; got != want {
			t.Errorf("told %q, want %q", got, want)
		}
	}
	if err := s.wait(t, "b.c1m1.0"); err != nil {
		t.Errorf("on the GPU that is open: %v", err)
	}
	if err := s.Make("a.c1m1.0"); !errors.Is(err, ErrClosed) || s.UUID("a.c1m1.6") != "" {
		t.Errorf("%v, %q", err, s.UUID("a.c1m1.6"))
	}
	devices, err := s.Devices()
	if err != nil || len(devices[0].Instances) > 0 || !strings.Contains(devices[0].Fault, ErrClosed.Error()) {
		t.Errorf("%+v, %v", devices, err)
	}
	close(hang)
	<-opened
	if got, want := s.UUID("a.c1m1.6"), before.UUID("a.c1m1.6"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if err := s.wait(t, "a.c7m8.0"); !errors.Is(err, partition.ErrNoRoom) {
		t.Errorf("in the room of a container: %v", err)
	}
}

// TestClosed: a GPU that is to be divided is not offered whole.
func TestClosed(t *testing.T) {
	g, d := &device{GPU: GPU{UUID: "GPU-a"}, why: errors.New("MIG mode is off")}, gpu.Device{UUID: "GPU-a", SMs: 108, Memory: 80 << 30}
	if g.offer(&d); !d.MIG || !strings.Contains(d.Fault, "MIG mode is off") {
		t.Errorf("%+v", d)
	}
}

// TestProfileDropped: a profile that is not offered any more is not taken from the container that has a place of it, which may start
// again there, also after a reset. Nobody else comes to its places.
func TestProfileDropped(t *testing.T) {
	d, file := newDriver(t), filepath.Join(t.TempDir(), "j")
	before := newSource(t, d, file, nil)
	for _, id := range []string{"a.c1m1.6", "a.c1m1.0"} {
		if err := before.wait(t, id); err != nil {
			t.Fatal(err)
		}
	}
	s := newSource(t, d, file, []string{"a.c1m1.6"}, "3g.40gb")
	if got, want := s.UUID("a.c1m1.6"), before.UUID("a.c1m1.6"); got != want || s.Make("a.c1m1.6") != nil {
		t.Errorf("%q, want %q; %v", got, want, s.Make("a.c1m1.6"))
	}
	if err := s.wait(t, "a.c3m4.4"); !errors.Is(err, partition.ErrNoRoom) {
		t.Errorf("in the room of a container: %v", err)
	}
	if err := s.Make("a.c1m1.0"); err == nil || errors.Is(err, ErrMaking) {
		t.Errorf("a place that is not offered: %v", err)
	}
	if diff := cmp.Diff([]string{"a.c1m1.6", "a.c3m4.0", "a.c3m4.4"}, offered(t, s)); diff != "" || !slices.Equal(s.Dropped(), []string{"a.c1m1.6"}) {
		t.Errorf("dropped %q\n%s", s.Dropped(), diff)
	}
	d.Reboot()
	offered(t, s)
	if err := s.wait(t, "a.c1m1.6"); err != nil {
		t.Errorf("after a reset: %v", err)
	}
	s.Hold([]string{"a.c3m4.0", "MIG-other"})
	if diff := cmp.Diff([]string{"a.c3m4.0", "a.c3m4.4"}, offered(t, s)); diff != "" || len(s.Dropped()) > 0 {
		t.Errorf("dropped %q\n%s", s.Dropped(), diff)
	}
}

// TestMissing: what a GPU lacks of the profiles is known when it is open.
func TestMissing(t *testing.T) {
	d, file := newDriver(t), filepath.Join(t.TempDir(), "j")
	s := newSource(t, d, file, nil, "3g.40gb", "3g.20gb", "1g.10gb+me")
	if diff := cmp.Diff([]string{"3g.20gb", "1g.10gb+me"}, s.Missing("GPU-a")); diff != "" {
		t.Error(diff)
	}
	for name, s := range map[string]*Source{"all": newSource(t, d, file, nil), "closed": New(d, s.opening())} {
		if missing := s.Missing("GPU-a"); len(missing) > 0 || len(s.Missing("GPU-b")) > 0 {
			t.Errorf("%s: %q", name, missing)
		}
	}
}
