package mig

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// maximal lists the sets of instances beside which no further one of the profiles fits, each once.
func maximal(profiles []*Profile) (sets [][]Instance) {
	var all []Instance
	for _, p := range profiles {
		for _, s := range p.Starts {
			all = append(all, Instance{p, s})
		}
	}
	var extend func(from int, l Layout, chosen []Instance)
	extend = func(from int, l Layout, chosen []Instance) {
		full := true
		for i, next := range all {
			if !l.Fits(next) {
				continue
			}
			full = false
			if i >= from {
				extend(i+1, l.With(next), append(slices.Clip(chosen), next))
			}
		}
		if full {
			sets = append(sets, chosen)
		}
	}
	extend(0, Layout{}, nil)
	return sets
}

// multisets counts the sets that differ in more than places.
func multisets(sets [][]Instance) int {
	seen := map[string]bool{}
	for _, set := range sets {
		var names []string
		for _, i := range set {
			names = append(names, i.Profile.Name)
		}
		slices.Sort(names)
		seen[strings.Join(names, " ")] = true
	}
	return len(seen)
}

// without lists a model's profiles but +me and those whose memory per compute slice is double.
func without(m *Model, double bool) (profiles []*Profile) {
	for p := range m.plain() {
		if double || p.Compute != 1 || p.Memory != 2 {
			profiles = append(profiles, p)
		}
	}
	return profiles
}

// The counts for seven compute slices are those of facts/cuda.md 5.2; for an A30 they are 4, 2+2, 2+1+1 on either side, 1x4.
func TestMaximalPlacements(t *testing.T) {
	for _, m := range Models() {
		want := [2][2]int{{19, 14}, {78, 38}}
		if m.Compute == 4 {
			want = [2][2]int{{5, 4}, {5, 4}}
		}
		for i, double := range []bool{false, true} {
			sets := maximal(without(m, double))
			if got := [2]int{len(sets), multisets(sets)}; got != want[i] {
				t.Errorf("%s, double memory %v: %d placements, %d multisets, want %d", m.Name, double, got[0], got[1], want[i])
			}
		}
	}
}

// A Layout does not count compute slices, because memory slices bound them.
func TestComputeNeverExceeded(t *testing.T) {
	for _, m := range Models() {
		for _, set := range maximal(without(m, true)) {
			compute := 0
			for _, i := range set {
				compute += i.Profile.Compute
			}
			if compute > m.Compute {
				t.Errorf("%s: %v has %d compute slices", m.Name, set, compute)
			}
		}
	}
}

// How many instances of each profile an empty GPU holds is published (spec/numbers.md 4.3 and NVIDIA's list of profiles).
func TestEmptyGPU(t *testing.T) {
	for model, want := range map[string]string{
		"A100-80GB":  "1g.10gb x7, 1g.10gb+me x1, 1g.20gb x4, 2g.20gb x3, 3g.40gb x2, 4g.40gb x1, 7g.80gb x1",
		"A100-40GB":  "1g.5gb x7, 1g.5gb+me x1, 1g.10gb x4, 2g.10gb x3, 3g.20gb x2, 4g.20gb x1, 7g.40gb x1",
		"H200-141GB": "1g.18gb x7, 1g.18gb+me x1, 1g.35gb x4, 2g.35gb x3, 3g.71gb x2, 4g.71gb x1, 7g.141gb x1",
		"A30-24GB":   "1g.6gb x4, 1g.6gb+me x1, 2g.12gb x2, 2g.12gb+me x1, 4g.24gb x1",
	} {
		m, err := ModelNamed(model)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range m.Rooms(Layout{}) {
			got = append(got, fmt.Sprintf("%s x%d", r.Profile.Name, r.Most))
		}
		if text := strings.Join(got, ", "); text != want {
			t.Errorf("%s: %s, want %s", model, text, want)
		}
	}
}

func TestModelNamed(t *testing.T) {
	if m, err := ModelNamed("T4"); err == nil {
		t.Errorf("a T4 has no MIG, but got %v", m)
	}
	if p, ok := Models()[0].Profile("9g.90gb"); ok {
		t.Errorf("got %v", p)
	}
}
