package mig

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// harmByHand is the gradient computed on lists of free slices, without sets, tables or layouts: what fragmentation gains,
// and if that is equal, the places lost.
func harmByHand(m *Model, used Slices, i Instance) [2]int {
	before := make([]bool, m.Memory)
	for b := range before {
		before[b] = used>>b&1 == 1
	}
	after := slices.Clone(before)
	for b := range i.Profile.Memory {
		after[i.Start+b] = true
	}
	f0, p0 := valueByHand(m, before)
	f1, p1 := valueByHand(m, after)
	return [2]int{f1 - f0, p0 - p1}
}

func valueByHand(m *Model, used []bool) (fragmentation, places int) {
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
		places += n
	}
	return fragmentation, places
}

func TestChoiceIsTheGradient(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 1))
	for range 500 {
		m := Models()[random.IntN(len(Models()))]
		gpus := make([]Layout, 1+random.IntN(5))
		for g := range gpus {
			gpus[g] = Layout{Used: Slices(random.IntN(1 << m.Memory)), Media: random.IntN(2) == 0}
		}
		p := &m.Profiles[random.IntN(len(m.Profiles))]
		gpu, start, ok := NewChooser(m).GPU(gpus, p)
		wantGPU, wantStart, wantOK := choiceByHand(m, gpus, p)
		if gpu != wantGPU || start != wantStart || ok != wantOK {
			t.Fatalf("%s on %v: GPU %d, start %d, %v; want GPU %d, start %d, %v", p.Name, gpus, gpu, start, ok, wantGPU, wantStart, wantOK)
		}
	}
}

func choiceByHand(m *Model, gpus []Layout, p *Profile) (gpu, start int, ok bool) {
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
			if harm := harmByHand(m, l.Used, Instance{p, s}); !ok || slices.Compare(harm[:], least[:]) < 0 {
				gpu, start, ok, least = g, s, true, harm
			}
		}
	}
	return gpu, start, ok
}

// The first instances of an empty A100: small ones leave room for the large.
func TestStartOnEmptyGPU(t *testing.T) {
	c := NewChooser(a100(t))
	for profile, want := range map[string]int{"1g.10gb": 6, "1g.20gb": 6, "2g.20gb": 4, "3g.40gb": 4, "4g.40gb": 0, "7g.80gb": 0} {
		if _, start, ok := c.GPU([]Layout{{}}, instance(t, profile, 0).Profile); !ok || start != want {
			t.Errorf("%s begins at %d (%v), want %d", profile, start, ok, want)
		}
	}
	if _, start, ok := c.GPU([]Layout{{Used: 1}}, instance(t, "7g.80gb", 0).Profile); ok {
		t.Errorf("7g begins at %d beside another instance", start)
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
		c.GPU(gpus, &m.Profiles[0])
	}
}
