package nvml_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	library "github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gshare-dev/gshare/node/partition"
	"github.com/gshare-dev/gshare/node/partition/nvml"
	fakemig "github.com/gshare-dev/gshare/test/fake/mig"
	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// errAny stands for any error: devices may refuse for different reasons.
var errAny = errors.New("any error")

// conformance are scenarios from an empty device, with the expected errors. A line is an action, the size of a profile and a start. The actions
// are create, remove, compute+, compute-, and start and stop of a process. A refused action changes nothing.
var conformance = map[string][]struct {
	line string
	want error
}{
	"whole":                {{"create 2g 4", nil}, {"compute+ 2g 4", nil}},
	"half made":            {{"create 1g 3", nil}},
	"overlap":              {{"create 4g 0", nil}, {"create 2g 2", partition.ErrInsufficientResources}, {"create 2g 4", nil}},
	"same place":           {{"create 1g 3", nil}, {"create 1g 3", partition.ErrInsufficientResources}},
	"unlisted place":       {{"create 2g 1", errAny}, {"create 3g 2", errAny}, {"create 1g 7", errAny}},
	"media engines":        {{"create 1g+me 0", nil}, {"create 1g+me 1", partition.ErrInsufficientResources}, {"create 1g 1", nil}},
	"media engines again":  {{"create 1g+me 0", nil}, {"remove 1g+me 0", nil}, {"create 1g+me 1", nil}},
	"double memory":        {{"create 1gx2 6", nil}, {"create 1g 6", partition.ErrInsufficientResources}},
	"full":                 {{"create 4g 0", nil}, {"create 3g 4", nil}, {"create 1g 6", partition.ErrInsufficientResources}, {"create 7g 0", partition.ErrInsufficientResources}},
	"one in the way":       {{"create 1g 6", nil}, {"create 7g 0", partition.ErrInsufficientResources}, {"remove 1g 6", nil}, {"create 7g 0", nil}},
	"compute twice":        {{"create 3g 0", nil}, {"compute+ 3g 0", nil}, {"compute+ 3g 0", partition.ErrInsufficientResources}},
	"remove with compute":  {{"create 1g 0", nil}, {"compute+ 1g 0", nil}, {"remove 1g 0", partition.ErrInUse}, {"compute- 1g 0", nil}, {"remove 1g 0", nil}},
	"nothing there":        {{"remove 1g 0", partition.ErrNotFound}, {"compute+ 1g 0", partition.ErrNotFound}, {"compute- 1g 0", partition.ErrNotFound}},
	"no compute there":     {{"create 1g 0", nil}, {"compute- 1g 0", partition.ErrNotFound}},
	"another lies there":   {{"create 2g 0", nil}, {"remove 1g 0", partition.ErrNotFound}},
	"a process holds both": {{"create 1g 2", nil}, {"compute+ 1g 2", nil}, {"start 1g 2", nil}, {"compute- 1g 2", partition.ErrInUse}, {"remove 1g 2", partition.ErrInUse}, {"stop 1g 2", nil}, {"compute- 1g 2", nil}},
}

// subject is a device under test. start and stop are nil if processes cannot be started.
type subject struct {
	partition.Device
	model       *mig.Model
	start, stop func(mig.Instance)
}

// TestConformance: the fake GPU, NVML on the fake GPU and NVML on a real GPU behave equally.
func TestConformance(t *testing.T) {
	m, err := mig.ModelNamed("H200-141GB")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("fake", func(t *testing.T) {
		g := fakemig.New("GPU-a", m)
		conform(t, subject{g, m, g.Start, g.Stop})
	})
	t.Run("NVML on the fake", func(t *testing.T) {
		g := fakemig.New("GPU-a", m)
		d, err := nvml.Find(g.NVML(), "GPU-a")
		if err != nil {
			t.Fatal(err)
		}
		conform(t, subject{d, d.Model(), g.Start, g.Stop})
	})
	t.Run("NVML on a GPU", func(t *testing.T) {
		d := spareGPU(t)
		conform(t, subject{Device: d, model: d.Model()})
	})
}

// spareGPU returns a GPU of this machine in MIG mode without instances, and skips the test if tests may not use GPUs.
func spareGPU(t *testing.T) *nvml.Device {
	if os.Getenv("GSHARE_TEST_GPU") == "" {
		t.Skip("GSHARE_TEST_GPU is not set: no permission to partition GPUs")
	}
	l := library.New()
	if r := l.Init(); r != library.SUCCESS {
		t.Fatal(library.ErrorString(r))
	}
	t.Cleanup(func() { l.Shutdown() })
	count, _ := l.DeviceGetCount()
	err := partition.ErrNoMIG
	for i := range count {
		handle, _ := l.DeviceGetHandleByIndex(i)
		uuid, _ := handle.GetUUID()
		d, found := nvml.Find(l, uuid)
		if found != nil {
			err = found
			continue
		}
		if instances, listed := d.Instances(); listed == nil && len(instances) == 0 {
			return d
		}
	}
	if errors.Is(err, partition.ErrNoMIG) {
		t.Skip(err)
	}
	t.Fatal(err)
	return nil
}

// conform plays the scenarios.
func conform(t *testing.T, s subject) {
	for name, script := range conformance {
		t.Run(name, func(t *testing.T) {
			defer s.clear(t)
			for _, c := range script {
				before := s.list(t)
				got, known := s.do(c.line)
				if !known {
					return
				}
				if c.want == errAny && got != nil {
					got = errAny
				}
				if !errors.Is(got, c.want) {
					t.Fatalf("%s: %v, want %v", c.line, got, c.want)
				}
				if after := s.list(t); (got == nil) == slices.Equal(before, after) {
					t.Fatalf("%s: %v: before %+v, after %+v", c.line, got, before, after)
				}
			}
		})
	}
}

// do executes a line. It returns false if the device lacks the profile, or if processes cannot be started.
func (s subject) do(line string) (err error, known bool) {
	var action, size string
	var start int
	fmt.Sscan(line, &action, &size, &start)
	p := profileOf(s.model, size)
	if p == nil || (action == "start" || action == "stop") && s.start == nil {
		return nil, false
	}
	at := mig.Instance{Profile: p, Start: start}
	switch action {
	case "start":
		s.start(at)
		return nil, true
	case "stop":
		s.stop(at)
		return nil, true
	}
	return s.Apply(geometry.Step{Action: map[string]geometry.Action{
		"create": geometry.CreateGPU, "remove": geometry.DestroyGPU, "compute+": geometry.CreateCompute, "compute-": geometry.DestroyCompute,
	}[action], Instance: at}), true
}

// profileOf returns the profile of a size such as 1g, 1g+me or 1gx2 (double memory), or nil.
func profileOf(m *mig.Model, size string) *mig.Profile {
	for i := range m.Profiles {
		p := &m.Profiles[i]
		plain, media := strings.CutSuffix(size, "+me")
		plain, double := strings.CutSuffix(plain, "x2")
		if fmt.Sprintf("%dg", p.Compute) == plain && p.Media == media && (p.Compute == 1 && p.Memory == 2) == double {
			return p
		}
	}
	return nil
}

func (s subject) list(t *testing.T) []partition.Instance {
	t.Helper()
	found, err := s.Instances()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range found {
		if whole := i.ComputeInstances == 1; whole != (i.UUID != "") {
			t.Fatalf("%d compute instances, but UUID %q", i.ComputeInstances, i.UUID)
		}
	}
	return found
}

func (s subject) clear(t *testing.T) {
	for _, i := range s.list(t) {
		for _, step := range geometry.RemovalSteps(geometry.Instance{Instance: i.Instance, Ready: i.UUID != ""}) {
			if err := s.Apply(step); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestDiscover: the model that is read through NVML equals the one that the fake GPU was created with.
func TestDiscover(t *testing.T) {
	for _, m := range mig.Models() {
		t.Run(m.Name, func(t *testing.T) {
			d, err := nvml.Find(fakemig.New("GPU-a", m).NVML(), "GPU-a")
			if err != nil {
				t.Fatal(err)
			}
			got := d.Model()
			if got.Compute != m.Compute || got.Memory != m.Memory || len(got.Profiles) != len(m.Profiles) {
				t.Errorf("got %d compute and %d memory slices, %d profiles", got.Compute, got.Memory, len(got.Profiles))
			}
			for _, want := range m.Profiles {
				p, ok := got.Profile(want.Name)
				if ok && (p.MiB <= 0 || p.MiB > want.MemoryGB<<10) {
					t.Errorf("%s has %d MiB", p.Name, p.MiB)
				}
				if want.MiB = 0; ok {
					p.MiB = 0 // not in the table
				}
				if !ok || fmt.Sprintf("%+v", *p) != fmt.Sprintf("%+v", want) {
					t.Errorf("got %+v, want %+v", p, want)
				}
			}
		})
	}
}
