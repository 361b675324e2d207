package mig

import (
	"math/rand/v2"
	"testing"
)

func instance(t *testing.T, profile string, start int) Instance {
	t.Helper()
	m := a100(t)
	p, ok := m.Profile(profile)
	if !ok {
		t.Fatalf("%s has no profile %s", m.Name, profile)
	}
	return Instance{p, start}
}

func a100(t testing.TB) *Model {
	t.Helper()
	m, err := ModelNamed("A100-80GB")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestFits(t *testing.T) {
	for name, c := range map[string]struct {
		running []Instance
		legal   bool
	}{
		"nothing":                     {nil, true},
		"4g, 2g, 1g":                  {[]Instance{instance(t, "4g.40gb", 0), instance(t, "2g.20gb", 4), instance(t, "1g.10gb", 6)}, true},
		"overlap":                     {[]Instance{instance(t, "4g.40gb", 0), instance(t, "2g.20gb", 2)}, false},
		"start that no driver offers": {[]Instance{instance(t, "2g.20gb", 6)}, false},
		"1g with double memory at 6":  {[]Instance{instance(t, "1g.20gb", 6)}, true},
		"1g on the last memory slice": {[]Instance{instance(t, "1g.10gb", 7)}, false},
		"one with media engines":      {[]Instance{instance(t, "1g.10gb+me", 0), instance(t, "1g.10gb", 1)}, true},
		"two with media engines":      {[]Instance{instance(t, "1g.10gb+me", 0), instance(t, "1g.10gb+me", 1)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			legal := true
			var l Layout
			for _, i := range c.running {
				legal = legal && l.Fits(i)
				l = l.With(i)
			}
			if legal != c.legal {
				t.Errorf("got legal %v, want %v", legal, c.legal)
			}
			if !legal {
				return
			}
			for _, i := range c.running {
				l = l.Without(i)
			}
			if l != (Layout{}) {
				t.Errorf("without all instances: got %+v, want none", l)
			}
		})
	}
}

// TestAvailable compares the availability with filling the GPU in every order.
func TestAvailable(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		m := Models()[random.IntN(len(Models()))]
		l := Layout{Used: Slices(random.IntN(1 << m.Memory)), Media: random.IntN(2) == 0}
		available := map[string]int{}
		for _, r := range m.Available(l) {
			available[r.Profile.Name] = r.Max
		}
		for i := range m.Profiles {
			p := &m.Profiles[i]
			if want := maxByTrial(l, p); available[p.Name] != want {
				t.Errorf("%s, %08b: %d of %s fit, want %d", m.Name, l.Used, available[p.Name], p.Name, want)
			}
		}
	}
}

func maxByTrial(l Layout, p *Profile) int {
	most := 0
	for _, s := range p.Starts {
		if i := (Instance{p, s}); l.Fits(i) {
			most = max(most, 1+maxByTrial(l.With(i), p))
		}
	}
	return most
}
