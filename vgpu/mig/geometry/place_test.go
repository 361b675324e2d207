package geometry_test

import (
	"math/rand/v2"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// TestPlanAt tries places beside random instances: one is refused only for what is used or fixed in the way, and the steps lead
// to it from what exists, removing nothing that stays.
func TestPlanAt(t *testing.T) {
	m, err := mig.ModelNamed("A100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(5, 5))
	for range 5000 {
		now, layout := []geometry.Instance{}, mig.Layout{}
		for range random.IntN(6) {
			if i := anyPlace(random, m); layout.Fits(i) {
				layout = layout.With(i)
				now = append(now, geometry.Instance{Instance: i, Ready: random.IntN(4) > 0, Used: random.IntN(3) == 0, Fixed: random.IntN(4) == 0})
			}
		}
		at := anyPlace(random, m)
		steps, ok := geometry.PlanAt(now, at)
		stay, there := mig.Layout{}, false
		for _, i := range now {
			if i.Instance == at {
				there = i.Used || i.Fixed && !i.Ready
			} else if i.Used || i.Fixed {
				stay = stay.With(i.Instance)
			}
		}
		if want := stay.Fits(at) && !there; ok != want {
			t.Fatalf("%+v at %v: %v", now, at, ok)
		}
		if ok {
			obey(t, now, steps, at)
		}
	}
}

func anyPlace(random *rand.Rand, m *mig.Model) mig.Instance {
	p := &m.Profiles[random.IntN(len(m.Profiles))]
	return mig.Instance{Profile: p, Start: p.Starts[random.IntN(len(p.Starts))]}
}

// obey takes the steps as a driver would.
func obey(t *testing.T, now []geometry.Instance, steps []geometry.Step, at mig.Instance) {
	t.Helper()
	layout, ready := mig.Layout{}, map[mig.Instance]bool{}
	for _, i := range now {
		layout, ready[i.Instance] = layout.With(i.Instance), i.Ready
	}
	for _, s := range steps {
		switch s.Action {
		case geometry.CreateGPU:
			if !layout.Fits(s.Instance) {
				t.Fatalf("%+v: %v", now, steps)
			}
			layout = layout.With(s.Instance)
		case geometry.DestroyGPU:
			if ready[s.Instance] {
				t.Fatalf("%+v: %v", now, steps)
			}
			layout = layout.Without(s.Instance)
		default:
			ready[s.Instance] = s.Action == geometry.CreateCompute
		}
		for _, i := range now {
			if s.Instance == i.Instance && (i.Used || i.Fixed) {
				t.Fatalf("%v on %+v", s, i)
			}
		}
	}
	if !ready[at] {
		t.Fatalf("%+v: %v do not lead to %v", now, steps, at)
	}
}
