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

	"github.com/gshare-dev/gshare/node/gpu"
	"github.com/gshare-dev/gshare/node/partition"
	"github.com/gshare-dev/gshare/vgpu/mig"
)

// TestOpen: a GPU whose driver hangs or is absent is closed, and does not delay others. The instances that containers use are held before
// anybody can request their slices.
func TestOpen(t *testing.T) {
	d, file := newDriver(t), filepath.Join(t.TempDir(), "j")
	before := newSource(t, d, file, nil)
	if err := before.ensure(t, "a.c1m1.6"); err != nil {
		t.Fatal(err)
	}
	hang, absent, reports := make(chan struct{}), errors.New("absent"), make(chan string, 9)
	tries, other, disk := 0, newDriver(t), journal{}
	s := New(d, []GPU{
		{UUID: "GPU-a", Open: func() (*partition.Manager, *mig.Model, error) {
			<-hang
			m, err := partition.Open(partition.Config{Device: d.GPU, UUID: "GPU-a", BootID: "b", Store: partition.File(file)})
			return m, d.Model(), err
		}},
		{UUID: "GPU-b", Open: func() (*partition.Manager, *mig.Model, error) {
			if tries++; tries < 5 {
				return nil, nil, absent
			}
			m, err := partition.Open(partition.Config{Device: other.GPU, UUID: "GPU-b", BootID: "b", Store: &disk})
			return m, other.Model(), err
		}},
	})
	s.SetUsed([]string{"a.c1m1.6"})
	opened := s.Open(t.Context(), time.Millisecond, func(uuid string, err error) { reports <- fmt.Sprint(uuid, " ", err) })
	for _, want := range []string{"GPU-b absent", "GPU-b <nil>"} {
		if got := <-reports; got != want {
			t.Errorf("got report %q, want %q", got, want)
		}
	}
	if err := s.ensure(t, "b.c1m1.0"); err != nil {
		t.Errorf("on the open GPU: %v", err)
	}
	if err := s.Ensure("a.c1m1.0"); !errors.Is(err, ErrClosed) || s.UUID("a.c1m1.6") != "" {
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
	if err := s.ensure(t, "a.c7m8.0"); !errors.Is(err, partition.ErrInsufficientResources) {
		t.Errorf("overlapping the instance of a container: %v", err)
	}
}

// TestClosed: a GPU whose instances are unknown is not offered as a whole.
func TestClosed(t *testing.T) {
	d, listed := &device{GPU: GPU{UUID: "GPU-a"}, openErr: errors.New("MIG mode is off")}, gpu.Device{UUID: "GPU-a", SMs: 108, Memory: 80 << 30}
	if d.offerPlacements(&listed); !listed.MIG || !strings.Contains(listed.Fault, "MIG mode is off") {
		t.Errorf("got %+v", listed)
	}
}

// TestProfileWithdrawn: a container keeps the placement of a profile that is not offered any more, and may restart there, also after a reset.
// No other container gets its placements.
func TestProfileWithdrawn(t *testing.T) {
	d, file := newDriver(t), filepath.Join(t.TempDir(), "j")
	before := newSource(t, d, file, nil)
	for _, id := range []string{"a.c1m1.6", "a.c1m1.0"} {
		if err := before.ensure(t, id); err != nil {
			t.Fatal(err)
		}
	}
	s := newSource(t, d, file, []string{"a.c1m1.6"}, "3g.40gb")
	if got, want := s.UUID("a.c1m1.6"), before.UUID("a.c1m1.6"); got != want || s.Ensure("a.c1m1.6") != nil {
		t.Errorf("%q, want %q; %v", got, want, s.Ensure("a.c1m1.6"))
	}
	if err := s.ensure(t, "a.c3m4.4"); !errors.Is(err, partition.ErrInsufficientResources) {
		t.Errorf("overlapping the instance of a container: %v", err)
	}
	if err := s.Ensure("a.c1m1.0"); err == nil || errors.Is(err, ErrCreating) {
		t.Errorf("placement that is not offered: %v", err)
	}
	if diff := cmp.Diff([]string{"a.c1m1.6", "a.c3m4.0", "a.c3m4.4"}, offered(t, s)); diff != "" || !slices.Equal(s.WithdrawnPlacements(), []string{"a.c1m1.6"}) {
		t.Errorf("withdrawn %q\n%s", s.WithdrawnPlacements(), diff)
	}
	d.Reboot()
	offered(t, s)
	if err := s.ensure(t, "a.c1m1.6"); err != nil {
		t.Errorf("after a reset: %v", err)
	}
	s.SetUsed([]string{"a.c3m4.0", "MIG-other"})
	if diff := cmp.Diff([]string{"a.c3m4.0", "a.c3m4.4"}, offered(t, s)); diff != "" || len(s.WithdrawnPlacements()) > 0 {
		t.Errorf("withdrawn %q\n%s", s.WithdrawnPlacements(), diff)
	}
}

// TestMissingProfiles: the profiles that an open GPU lacks are known.
func TestMissingProfiles(t *testing.T) {
	d, file := newDriver(t), filepath.Join(t.TempDir(), "j")
	s := newSource(t, d, file, nil, "3g.40gb", "3g.20gb", "1g.10gb+me")
	if diff := cmp.Diff([]string{"3g.20gb", "1g.10gb+me"}, s.MissingProfiles("GPU-a")); diff != "" {
		t.Error(diff)
	}
	for name, s := range map[string]*Source{"all": newSource(t, d, file, nil), "closed": New(d, s.configs())} {
		t.Run(name, func(t *testing.T) {
			if missing := s.MissingProfiles("GPU-a"); len(missing) > 0 || len(s.MissingProfiles("GPU-b")) > 0 {
				t.Errorf("got %q, want none", missing)
			}
		})
	}
}
