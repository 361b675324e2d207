package mig

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// maximal returns the sets of instances beside which no further instance of the profiles fits, each once.
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

// multisets returns the number of sets that differ in their profiles.
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

// someProfiles returns the profiles without media engines; those with double memory only if wanted.
func someProfiles(m *Model, double bool) (profiles []*Profile) {
	for p := range m.profilesWithoutMedia() {
		if double || p.Compute != 1 || p.Memory != 2 {
			profiles = append(profiles, p)
		}
	}
	return profiles
}

// TestMaximalPlacements: the numbers of maximal placements are those of NVIDIA's documentation for seven compute slices; for an A30 they are
// 4, 2+2, 2+1+1 on either side, and 1x4.
func TestMaximalPlacements(t *testing.T) {
	for _, m := range Models() {
		want := [2][2]int{{19, 14}, {78, 38}}
		if m.Compute == 4 {
			want = [2][2]int{{5, 4}, {5, 4}}
		}
		for i, double := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, double memory %v", m.Name, double), func(t *testing.T) {
				sets := maximal(someProfiles(m, double))
				if got := [2]int{len(sets), multisets(sets)}; got != want[i] {
					t.Errorf("got %d placements, %d multisets, want %d", got[0], got[1], want[i])
				}
			})
		}
	}
}

// TestComputeNeverExceeded: memory slices bound the compute slices, which a Layout does not count.
func TestComputeNeverExceeded(t *testing.T) {
	for _, m := range Models() {
		for _, set := range maximal(someProfiles(m, true)) {
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

// TestEmptyGPU: the numbers of instances of each profile on an empty GPU are those of NVIDIA's list of profiles.
func TestEmptyGPU(t *testing.T) {
	for model, want := range map[string]string{
		"A100-80GB":  "1g.10gb x7, 1g.10gb+me x1, 1g.20gb x4, 2g.20gb x3, 3g.40gb x2, 4g.40gb x1, 7g.80gb x1",
		"A100-40GB":  "1g.5gb x7, 1g.5gb+me x1, 1g.10gb x4, 2g.10gb x3, 3g.20gb x2, 4g.20gb x1, 7g.40gb x1",
		"H200-141GB": "1g.18gb x7, 1g.18gb+me x1, 1g.35gb x4, 2g.35gb x3, 3g.71gb x2, 4g.71gb x1, 7g.141gb x1",
		"A30-24GB":   "1g.6gb x4, 1g.6gb+me x1, 2g.12gb x2, 2g.12gb+me x1, 4g.24gb x1",
	} {
		t.Run(model, func(t *testing.T) {
			m, err := ModelNamed(model)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range m.Available(Layout{}) {
				got = append(got, fmt.Sprintf("%s x%d", r.Profile.Name, r.Max))
			}
			if text := strings.Join(got, ", "); text != want {
				t.Errorf("got %s, want %s", text, want)
			}
		})
	}
}

func TestModelNamed(t *testing.T) {
	if m, err := ModelNamed("T4"); err == nil {
		t.Errorf("T4, which has no MIG: got %v", m)
	}
	if p, ok := Models()[0].Profile("9g.90gb"); ok {
		t.Errorf("got %v", p)
	}
}

// TestModelTables compares each profile's SMs and placements with NVIDIA's tables of supported profiles.
func TestModelTables(t *testing.T) {
	const seven = "1g at 0 1 2 3 4 5 6; 1g+me at 0 1 2 3 4 5 6; 1g at 0 2 4 6; 2g at 0 2 4; 3g at 0 4; 4g at 0; 7g at 0"
	for name, want := range map[string]struct{ profiles, placements string }{
		"A100-40GB":  {"1g.5gb 14, 1g.5gb+me 14, 1g.10gb 14, 2g.10gb 28, 3g.20gb 42, 4g.20gb 56, 7g.40gb 98", seven},
		"A100-80GB":  {"1g.10gb 14, 1g.10gb+me 14, 1g.20gb 14, 2g.20gb 28, 3g.40gb 42, 4g.40gb 56, 7g.80gb 98", seven},
		"A30-24GB":   {"1g.6gb 14, 1g.6gb+me 14, 2g.12gb 28, 2g.12gb+me 28, 4g.24gb 56", "1g at 0 1 2 3; 1g+me at 0 1 2 3; 2g at 0 2; 2g+me at 0 2; 4g at 0"},
		"H100-80GB":  {"1g.10gb 16, 1g.10gb+me 16, 1g.20gb 26, 2g.20gb 32, 3g.40gb 60, 4g.40gb 64, 7g.80gb 132", seven},
		"H100-94GB":  {"1g.12gb 0, 1g.12gb+me 0, 1g.24gb 0, 2g.24gb 0, 3g.47gb 0, 4g.47gb 0, 7g.94gb 0", seven},
		"H200-141GB": {"1g.18gb 0, 1g.18gb+me 0, 1g.35gb 0, 2g.35gb 0, 3g.71gb 0, 4g.71gb 0, 7g.141gb 0", seven},
		"B200-180GB": {"1g.23gb 0, 1g.23gb+me 0, 1g.45gb 0, 2g.45gb 0, 3g.90gb 0, 4g.90gb 0, 7g.180gb 0", seven},
	} {
		m, err := ModelNamed(name)
		if err != nil {
			t.Error(err)
			continue
		}
		var profiles, placements []string
		for _, p := range m.Profiles {
			profiles = append(profiles, fmt.Sprintf("%s %d", p.Name, p.SMs))
			me := ""
			if p.Media {
				me = "+me"
			}
			placements = append(placements, fmt.Sprintf("%dg%s at %s", p.Compute, me, strings.Trim(fmt.Sprint(p.Starts), "[]")))
		}
		if got := strings.Join(profiles, ", "); got != want.profiles {
			t.Errorf("%s has %s, want %s", name, got, want.profiles)
		}
		if got := strings.Join(placements, "; "); got != want.placements {
			t.Errorf("%s: %s, want %s", name, got, want.placements)
		}
	}
	if len(Models()) != 7 {
		t.Errorf("%d models, want 7", len(Models()))
	}
}
