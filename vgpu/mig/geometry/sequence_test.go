package geometry_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// gpu executes steps like a driver, with an account of its own.
type gpu struct {
	model     *mig.Model
	instances []geometry.Instance
	creations int
}

// apply executes a step, and returns an error if it is illegal.
func (g *gpu) apply(s geometry.Step) error {
	n := slices.IndexFunc(g.instances, func(i geometry.Instance) bool { return i.Instance == s.Instance })
	if s.Action == geometry.CreateGPU {
		g.creations++
		g.instances = append(g.instances, geometry.Instance{Instance: s.Instance})
		return g.check()
	}
	if n < 0 || g.instances[n].Used || g.instances[n].Fixed {
		return fmt.Errorf("%s: used, fixed or missing", s.Action)
	}
	if ready := s.Action == geometry.DestroyCompute; g.instances[n].Ready != ready {
		return fmt.Errorf("%s: compute instance %v", s.Action, !ready)
	}
	switch s.Action {
	case geometry.DestroyGPU:
		g.instances = slices.Delete(g.instances, n, n+1)
	default:
		g.instances[n].Ready = !g.instances[n].Ready
	}
	return nil
}

// check returns an error if instances overlap, or exceed the compute slices or media engines.
func (g *gpu) check() error {
	var memory [8]int
	compute, media := 0, 0
	for _, i := range g.instances {
		if !slices.Contains(i.Profile.Starts, i.Start) {
			return fmt.Errorf("%s cannot start at %d", i.Profile.Name, i.Start)
		}
		for s := i.Start; s < i.Start+i.Profile.Memory; s++ {
			memory[s]++
		}
		compute += i.Profile.Compute
		if i.Profile.Media {
			media++
		}
	}
	if slices.Max(memory[:]) > 1 || compute > g.model.Compute || media > 1 {
		return fmt.Errorf("memory %v, compute %d, media %d", memory, compute, media)
	}
	return nil
}

// use marks an instance as used or unused.
func (g *gpu) use(at mig.Instance, used bool) error {
	for n := range g.instances {
		if i := &g.instances[n]; i.Instance == at && i.Ready && i.Used != used {
			i.Used = used
			return nil
		}
	}
	return fmt.Errorf("no ready instance at %d", at.Start)
}

// obtain executes the plan for an instance, or returns false if there is none.
func (g *gpu) obtain(at mig.Instance) (ok bool, err error) {
	steps, ok := geometry.Plan(g.instances, at)
	if !ok {
		return false, nil
	}
	for _, s := range steps {
		if err := g.apply(s); err != nil {
			return true, err
		}
	}
	return true, g.use(at, true)
}

// gradient chooses by package mig, and removes instances as soon as they are unused.
type gradient struct {
	chooser   *mig.Chooser
	layout    mig.Layout
	creations int
}

func (g *gradient) obtain(profile *mig.Profile) (mig.Instance, bool) {
	_, start, ok := g.chooser.Choose([]mig.Layout{g.layout}, profile)
	at := mig.Instance{Profile: profile, Start: start}
	if ok {
		g.layout = g.layout.With(at)
		g.creations++
	}
	return at, ok
}

// TestSequences plays random requests and ends: no illegal instance is created, used instances are not touched, none is left incomplete, and
// a GPU that keeps idle instances accepts exactly the requests that the gradient policy accepts.
func TestSequences(t *testing.T) {
	choosers := map[*mig.Model]*mig.Chooser{}
	for _, m := range mig.Models() {
		choosers[m] = mig.NewChooser(m)
	}
	random := rand.New(rand.NewPCG(7, 1))
	lazy, eager := 0, 0
	for n := range 10_000 {
		m := mig.Models()[n%len(mig.Models())]
		g, other := &gpu{model: m}, &gradient{chooser: choosers[m]}
		if err := playSequence(random, g, other); err != nil {
			t.Fatalf("sequence %d on %s: %v", n, m.Name, err)
		}
		lazy, eager = lazy+g.creations, eager+other.creations
	}
	t.Logf("%d creations; %d if instances were removed at their end", lazy, eager)
	if lazy >= eager*9/10 {
		t.Errorf("keeping idle instances saved less than a tenth: %d creations for %d", lazy, eager)
	}
}

func playSequence(random *rand.Rand, g *gpu, other *gradient) error {
	var used []mig.Instance
	for range 40 {
		if len(used) > 0 && random.IntN(2) == 0 {
			end := random.IntN(len(used))
			if err := g.use(used[end], false); err != nil {
				return err
			}
			other.layout = other.layout.Without(used[end])
			used = slices.Delete(used, end, end+1)
			continue
		}
		profile := &g.model.Profiles[random.IntN(len(g.model.Profiles))]
		at, accepted := other.obtain(profile)
		if !accepted {
			at.Start = profile.Starts[random.IntN(len(profile.Starts))]
		}
		ok, err := g.obtain(at)
		if err != nil {
			return err
		}
		if accepted != ok {
			return fmt.Errorf("%s at %d beside %v: %v, by gradient %v", profile.Name, at.Start, used, ok, accepted)
		}
		if ok {
			used = append(used, at)
		}
	}
	for _, i := range g.instances {
		if !i.Ready {
			return fmt.Errorf("%s at %d is incomplete", i.Profile.Name, i.Start)
		}
	}
	return nil
}

// TestAnyState checks single requests in states that sequences may not reach, with instances of others and incomplete ones.
func TestAnyState(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 1))
	for range 20_000 {
		m := mig.Models()[random.IntN(len(mig.Models()))]
		g := &gpu{model: m, instances: anyState(random, m)}
		before := slices.Clone(g.instances)
		at := anyPlacement(random, m)
		ok, err := g.obtain(at)
		if err != nil {
			t.Fatalf("%v beside %+v: %v", at, before, err)
		}
		if want := possible(m, before, at); ok != want {
			t.Fatalf("%v beside %+v: %v, want %v", at, before, ok, want)
		}
		for _, i := range before {
			if (i.Used || i.Fixed && i.Instance != at) && !slices.Contains(g.instances, i) {
				t.Fatalf("%v changed %+v", at, i)
			}
		}
	}
}

// possible reports whether an instance can be obtained: the one at the placement can be reused, or no instance that stays conflicts with it.
func possible(m *mig.Model, now []geometry.Instance, at mig.Instance) bool {
	g := gpu{model: m, instances: []geometry.Instance{{Instance: at}}}
	for _, i := range now {
		if i.Instance == at {
			if i.Used || i.Fixed && !i.Ready {
				return false
			}
			continue
		}
		if i.Used || i.Fixed {
			g.instances = append(g.instances, i)
		}
	}
	return g.check() == nil
}

// anyPlacement returns a random placement.
func anyPlacement(random *rand.Rand, m *mig.Model) mig.Instance {
	p := &m.Profiles[random.IntN(len(m.Profiles))]
	return mig.Instance{Profile: p, Start: p.Starts[random.IntN(len(p.Starts))]}
}

// anyState returns random instances that do not conflict.
func anyState(random *rand.Rand, m *mig.Model) []geometry.Instance {
	g := gpu{model: m}
	for range random.IntN(12) {
		i := geometry.Instance{
			Instance: anyPlacement(random, m), Ready: random.IntN(3) > 0, Used: random.IntN(3) == 0, Fixed: random.IntN(3) == 0,
		}
		g.instances = append(g.instances, i)
		if g.check() != nil {
			g.instances = g.instances[:len(g.instances)-1]
		}
	}
	return g.instances
}
