package shapes

import (
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func familyList() []Family {
	var list []Family
	for _, name := range slices.Sorted(maps.Keys(Families())) {
		list = append(list, Families()[name])
	}
	return list
}

// part is one line of a family's definition: a weight, and the quotas and SM shares that are drawn independently.
type part struct {
	weight     float64
	quota, sms []int
}

// definitions are the families of docs/packing.md.
var definitions = map[string][]part{
	"papermix": {
		{0.5, []int{20, 40, 60, 80}, []int{12}},
		{0.25, []int{20, 40, 60, 80}, []int{24}},
		{0.25, []int{40, 60, 80}, []int{50}},
	},
	"fastgrid":  {{1, []int{20, 40, 60, 80, 100}, []int{6, 12, 24, 50, 60, 80, 100}}},
	"smallgrid": {{1, []int{20, 40, 60, 80, 100}, []int{6, 12, 12, 24}}},
	"uniform":   {{1, numbers(5, 100), numbers(5, 60)}},
	"overhalf":  {{1, numbers(51, 75), numbers(5, 25)}},
}

func numbers(from, to int) []int {
	var all []int
	for n := from; n <= to; n++ {
		all = append(all, n)
	}
	return all
}

func TestFamiliesMatchTheirDefinition(t *testing.T) {
	const draws = 200_000
	for name, family := range Families() {
		seen := frequencies(family, draws)
		for pod, p := range expected(definitions[name]) {
			sigma := math.Sqrt(p * (1 - p) / draws)
			if math.Abs(seen[pod]-p) > 5.5*sigma {
				t.Errorf("%s: %v has frequency %v, want %v", name, pod, seen[pod], p)
			}
			delete(seen, pod)
		}
		if len(seen) > 0 {
			t.Errorf("%s: draws %v", name, seen)
		}
	}
}

func frequencies(family Family, draws int) map[Pod]float64 {
	seen := map[Pod]float64{}
	for _, p := range Draw(family, draws, 1) {
		seen[p] += 1 / float64(draws)
	}
	return seen
}

func expected(parts []part) map[Pod]float64 {
	of := map[Pod]float64{}
	for _, x := range parts {
		for _, q := range x.quota {
			for _, sm := range x.sms {
				of[Pod{SM: share.PerMille(10 * sm), Quota: share.PerMille(10 * q)}] += x.weight / float64(len(x.quota)*len(x.sms))
			}
		}
	}
	return of
}

func TestFromDrawsEachAlike(t *testing.T) {
	list := []Pod{percent(1, 1), percent(2, 2), percent(2, 2)}
	seen := frequencies(SampleOf(list), 100_000)
	if len(seen) != 2 || math.Abs(seen[list[0]]-1.0/3) > 0.01 {
		t.Errorf("frequencies %v", seen)
	}
}

// openb: the smallest step that holds the pod, and no less SM-time than it asks for, by less than a percent of quota.
func TestOfMilliGPU(t *testing.T) {
	for n := 1; n <= 1000; n++ {
		p := OfMilliGPU(n)
		if err := p.Check(0); err != nil {
			t.Fatal(n, err)
		}
		step := slices.Index(gridSM, int(p.SM/10))
		if step < 0 || int(p.SM) < n || step > 0 && 10*gridSM[step-1] >= n {
			t.Errorf("%d: SM share %v", n, p.SM)
		}
		if asked := share.Area(n) * share.Area(share.Whole); p.Area() < asked || p.Area()-asked >= 10*share.Area(p.SM) {
			t.Errorf("%d: %v", n, p)
		}
	}
}

func TestDrawDependsOnTheSeedAlone(t *testing.T) {
	family := Families()["uniform"]
	if !slices.Equal(Draw(family, 50, 1), Draw(family, 50, 1)) || slices.Equal(Draw(family, 50, 1), Draw(family, 50, 2)) {
		t.Error("the same seed must give the same pods, another one others")
	}
}
