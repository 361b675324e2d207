package deviceid

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAll(t *testing.T) {
	want := []string{"g0-0", "g0-1", "g2-0"}
	if diff := cmp.Diff(want, All([]int{2, 0, 1})); diff != "" {
		t.Error(diff)
	}
	for _, id := range All([]int{60, 60}) {
		slice, slot, err := Parse(id)
		if again := All([]int{60, 60})[slice*60+slot]; err != nil || again != id {
			t.Errorf("%s reads as %d, %d (%v)", id, slice, slot, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, id := range []string{"", "g", "g1", "g1-", "g-1-2", "1-2", "g01-2", "g1-2 ", "g1-+2", "gg1-2", "g99999999999999999999-1"} {
		if slice, slot, err := Parse(id); err == nil {
			t.Errorf("%q is taken for %d, %d", id, slice, slot)
		}
	}
}

func TestKey(t *testing.T) {
	ids := All([]int{16, 16})
	seen := map[string][]string{}
	for range 2000 {
		rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		set := slices.Sorted(slices.Values(ids[:1+rand.IntN(3)]))
		key := Key(set)
		slices.Reverse(set)
		if Key(set) != key {
			t.Fatalf("the key of %v depends on the order", set)
		}
		slices.Sort(set)
		if other := seen[key]; other != nil && !slices.Equal(other, set) {
			t.Fatalf("%v and %v have one key", other, set)
		}
		seen[key] = set
	}
	if Key([]string{"g1-11"}) == Key([]string{"g1-1", "1"}) {
		t.Error("joined names pass for one another")
	}
}

func TestPrefer(t *testing.T) {
	available := []string{"g0-0", "g0-1", "g1-0", "g1-1", "g2-0"}
	for name, test := range map[string]struct {
		must   []string
		wanted []int
		n      int
		want   []string
	}{
		"steered":            {nil, []int{1}, 1, []string{"g1-0"}},
		"several slices":     {nil, []int{2, 0}, 2, []string{"g2-0", "g0-0"}},
		"unknown slice":      {nil, []int{7}, 1, []string{"g0-0"}},
		"nothing known":      {nil, nil, 2, []string{"g0-0", "g0-1"}},
		"must come first":    {[]string{"g0-1"}, []int{1}, 2, []string{"g0-1", "g1-0"}},
		"more than there is": {nil, []int{1}, 9, []string{"g1-0", "g0-0", "g0-1", "g1-1", "g2-0"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Prefer(available, test.must, test.wanted, test.n)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("g0-3")
	f.Add("g0--1")
	f.Add("g-1-0")
	f.Fuzz(func(t *testing.T, id string) {
		slice, slot, err := Parse(id)
		if err == nil && (slice < 0 || slot < 0) {
			t.Errorf("%q reads as %d, %d", id, slice, slot)
		}
	})
}
