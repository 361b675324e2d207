package geometry_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/mig"
	"github.com/gshare-dev/gshare/vgpu/mig/geometry"
)

// gpu takes steps as a driver does, by its own count of what lies where.
type gpu struct {
	model     *mig.Model
	instances []geometry.Instance
	creations int
}

func (g *gpu) take(s geometry.Step) error {
	n := slices.IndexFunc(g.instances, func(i geometry.Instance) bool { return i.Instance == s.Instance })
	if s.Action == geometry.CreateGPU {
		g.creations++
		g.instances = append(g.instances, geometry.Instance{Instance: s.Instance})
		return g.check()
	}
	if n < 0 || g.instances[n].Used || g.instances[n].Fixed {
		return fmt.Errorf("%s: used, fixed or not there", s.Action)
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

// check counts who lies on each memory slice, and what there is of compute slices and media engines.
func (g *gpu) check() error {
	var memory [8]int
	compute, media := 0, 0
	for _, i := range g.instances {
		if !slices.Contains(i.Profile.Starts, i.Start) {
			return fmt.Errorf("%s cannot begin at %d", i.Profile.Name, i.Start)
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

// use finds an instance and marks it.
func (g *gpu) use(at mig.Instance, used bool) error {
	for n := range g.instances {
		if i := &g.instances[n]; i.Instance == at && i.Ready && i.Used != used {
			i.Used = used
			return nil
		}
	}
	return fmt.Errorf("no such instance is ready at %d", at.Start)
}

func (g *gpu) obtain(p *geometry.Planner, wish *mig.Profile) (mig.Instance, bool, error) {
	at, steps, ok := p.Plan(g.instances, wish)
	for _, s := range steps {
		if err := g.take(s); err != nil {
			return at, ok, err
		}
	}
	if !ok {
		return at, false, nil
	}
	return at, true, g.use(at, true)
}

// gradient is the policy of package mig beside it: instances are removed as soon as they end.
type gradient struct {
	chooser   *mig.Chooser
	layout    mig.Layout
	creations int
}

func (g *gradient) obtain(wish *mig.Profile) (mig.Instance, bool) {
	start, ok := g.chooser.Start(g.layout, wish)
	at := mig.Instance{Profile: wish, Start: start}
	if ok {
		g.layout = g.layout.With(at)
		g.creations++
	}
	return at, ok
}

// TestSequences plays random wishes and ends: nothing illegal is created, what is used is not touched, nothing is left
// half made, and the wishes that are accepted are those that the gradient policy accepts.
func TestSequences(t *testing.T) {
	planners, choosers := planners(), map[*mig.Model]*mig.Chooser{}
	for _, m := range mig.Models() {
		choosers[m] = mig.NewChooser(m)
	}
	random := rand.New(rand.NewPCG(7, 1))
	lazy, eager := 0, 0
	for n := range 10_000 {
		m := mig.Models()[n%len(mig.Models())]
		g, other := &gpu{model: m}, &gradient{chooser: choosers[m]}
		if err := playSequence(random, g, other, planners[m]); err != nil {
			t.Fatalf("sequence %d on %s: %v", n, m.Name, err)
		}
		lazy, eager = lazy+g.creations, eager+other.creations
	}
	t.Logf("%d creations; %d if instances were removed at their end", lazy, eager)
	if lazy >= eager*9/10 {
		t.Errorf("keeping idle instances saved less than a tenth: %d creations for %d", lazy, eager)
	}
}

func planners() map[*mig.Model]*geometry.Planner {
	all := map[*mig.Model]*geometry.Planner{}
	for _, m := range mig.Models() {
		all[m] = geometry.NewPlanner(m)
	}
	return all
}

func playSequence(random *rand.Rand, g *gpu, other *gradient, planner *geometry.Planner) error {
	var mine, theirs []mig.Instance // in use, in the order of their wishes
	for range 40 {
		if len(mine) > 0 && random.IntN(2) == 0 {
			end := random.IntN(len(mine))
			if err := g.use(mine[end], false); err != nil {
				return err
			}
			other.layout = other.layout.Without(theirs[end])
			mine, theirs = slices.Delete(mine, end, end+1), slices.Delete(theirs, end, end+1)
			continue
		}
		wish := &g.model.Profiles[random.IntN(len(g.model.Profiles))]
		at, ok, err := g.obtain(planner, wish)
		if err != nil {
			return err
		}
		place, accepted := other.obtain(wish)
		if accepted != ok {
			return fmt.Errorf("%s beside %v: %v, by gradient %v", wish.Name, mine, ok, accepted)
		}
		if ok {
			mine, theirs = append(mine, at), append(theirs, place)
		}
	}
	for _, i := range g.instances {
		if !i.Ready {
			return fmt.Errorf("%s at %d is left half made", i.Profile.Name, i.Start)
		}
	}
	return nil
}

// TestAnyState holds single wishes against all that could be done, from states that no sequence need lead to: instances of
// strangers, and half made ones.
func TestAnyState(t *testing.T) {
	planners, random := planners(), rand.New(rand.NewPCG(8, 1))
	for range 20_000 {
		m := mig.Models()[random.IntN(len(mig.Models()))]
		g := &gpu{model: m, instances: anyState(random, m)}
		before := slices.Clone(g.instances)
		wish := &m.Profiles[random.IntN(len(m.Profiles))]
		_, ok, err := g.obtain(planners[m], wish)
		if err != nil {
			t.Fatalf("%s beside %+v: %v", wish.Name, before, err)
		}
		if want := possible(m, before, wish); ok != want {
			t.Fatalf("%s beside %+v: %v, want %v", wish.Name, before, ok, want)
		}
		for _, i := range before {
			if (i.Used || i.Fixed && !i.Ready) && !slices.Contains(g.instances, i) {
				t.Fatalf("%s changed %+v", wish.Name, i)
			}
		}
	}
}

// possible says that a given instance will do, or a place is free of all that stay.
func possible(m *mig.Model, now []geometry.Instance, wish *mig.Profile) bool {
	g := gpu{model: m}
	for _, i := range now {
		if i.Fixed && i.Ready && !i.Used && i.Profile == wish {
			return true
		}
		if i.Used || i.Fixed {
			g.instances = append(g.instances, i)
		}
	}
	n := len(g.instances)
	for _, start := range wish.Starts {
		g.instances = append(g.instances[:n:n], geometry.Instance{Instance: mig.Instance{Profile: wish, Start: start}})
		if g.check() == nil {
			return true
		}
	}
	return false
}

func anyState(random *rand.Rand, m *mig.Model) []geometry.Instance {
	g := gpu{model: m}
	for range random.IntN(12) {
		p := &m.Profiles[random.IntN(len(m.Profiles))]
		i := geometry.Instance{
			Instance: mig.Instance{Profile: p, Start: p.Starts[random.IntN(len(p.Starts))]},
			Ready:    random.IntN(3) > 0, Used: random.IntN(3) == 0, Fixed: random.IntN(3) == 0,
		}
		g.instances = append(g.instances, i)
		if g.check() != nil {
			g.instances = g.instances[:len(g.instances)-1]
		}
	}
	return g.instances
}
