package mig

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// naiveCost computes the cost on lists of free slices, without sets, tables or layouts: the increase of fragmentation, then the placements
// lost.
func naiveCost(m *Model, used Slices, i Instance) [2]int {
	before := make([]bool, m.Memory)
	for b := range before {
		before[b] = used>>b&1 == 1
	}
	after := slices.Clone(before)
	for b := range i.Profile.Memory {
		after[i.Start+b] = true
	}
	f0, p0 := naiveValue(m, before)
	f1, p1 := naiveValue(m, after)
	return [2]int{f1 - f0, p0 - p1}
}

func naiveValue(m *Model, used []bool) (fragmentation, placements int) {
	free := 0
	for _, u := range used {
		if !u {
			free++
		}
	}
	for _, p := range m.Profiles {
		if p.Media {
			continue
		}
		n := 0
		for _, s := range p.Starts {
			if !slices.Contains(used[s:s+p.Memory], true) {
				n++
			}
		}
		if n == 0 {
			fragmentation += free
		}
		placements += n
	}
	return fragmentation, placements
}

// TestChoose compares choices with those of a naive implementation.
func TestChoose(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 1))
	for range 500 {
		m := Models()[random.IntN(len(Models()))]
		gpus := make([]Layout, 1+random.IntN(5))
		for g := range gpus {
			gpus[g] = Layout{Used: Slices(random.IntN(1 << m.Memory)), Media: random.IntN(2) == 0}
		}
		p := &m.Profiles[random.IntN(len(m.Profiles))]
		gpu, start, ok := NewChooser(m).Choose(gpus, p)
		wantGPU, wantStart, wantOK := naiveChoice(m, gpus, p)
		if gpu != wantGPU || start != wantStart || ok != wantOK {
			t.Fatalf("%s on %v: GPU %d, start %d, %v; want GPU %d, start %d, %v", p.Name, gpus, gpu, start, ok, wantGPU, wantStart, wantOK)
		}
	}
}

func naiveChoice(m *Model, gpus []Layout, p *Profile) (gpu, start int, ok bool) {
	var least [2]int
	for g, l := range gpus {
		for _, s := range p.Starts {
			overlaps := false
			for b := s; b < s+p.Memory; b++ {
				overlaps = overlaps || l.Used>>b&1 == 1
			}
			if overlaps || p.Media && l.Media {
				continue
			}
			if cost := naiveCost(m, l.Used, Instance{p, s}); !ok || slices.Compare(cost[:], least[:]) < 0 {
				gpu, start, ok, least = g, s, true, cost
			}
		}
	}
	return gpu, start, ok
}

// TestChooseOnEmptyGPU: on an empty A100, small instances leave the placements of large ones free.
func TestChooseOnEmptyGPU(t *testing.T) {
	c := NewChooser(a100(t))
	for profile, want := range map[string]int{"1g.10gb": 6, "1g.20gb": 6, "2g.20gb": 4, "3g.40gb": 4, "4g.40gb": 0, "7g.80gb": 0} {
		t.Run(profile, func(t *testing.T) {
			if _, start, ok := c.Choose([]Layout{{}}, instance(t, profile, 0).Profile); !ok || start != want {
				t.Errorf("starts at %d (%v), want %d", start, ok, want)
			}
		})
	}
	if _, start, ok := c.Choose([]Layout{{Used: 1}}, instance(t, "7g.80gb", 0).Profile); ok {
		t.Errorf("7g starts at %d beside another instance", start)
	}
}

func BenchmarkChoose60GPUs(b *testing.B) {
	m := a100(b)
	random := rand.New(rand.NewPCG(3, 1))
	gpus := make([]Layout, 60)
	for g := range gpus {
		gpus[g].Used = Slices(random.IntN(256))
	}
	c := NewChooser(m)
	for b.Loop() {
		c.Choose(gpus, &m.Profiles[0])
	}
}

// TestFragmentationCost compares the cost of each placement with that of a naive implementation.
func TestFragmentationCost(t *testing.T) {
	for _, m := range Models() {
		_, whole := naiveValue(m, make([]bool, m.Memory))
		for used := range Slices(1 << m.Memory) {
			for p := range m.profilesWithoutMedia() {
				for _, at := range (Layout{Used: used}).Starts(p) {
					i := Instance{p, at}
					want := naiveCost(m, used, i)
					if got := m.FragmentationCost(Layout{Used: used}, i); got != want[0]*whole+want[1] {
						t.Fatalf("%s: %s at %d of %b costs %d, want %d", m.Name, p.Name, at, used, got, want[0]*whole+want[1])
					}
				}
			}
		}
	}
}
