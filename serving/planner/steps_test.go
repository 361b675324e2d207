package planner

import (
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// TestSteps: which changes are made at once, and which have to wait.
func TestSteps(t *testing.T) {
	type hosts = map[string]string
	for name, test := range map[string]struct {
		now, wanted hosts
		ready       string // functions of one letter
		steps       []step
		waits       []string
	}{
		"nothing":                 {hosts{"a": "", "b": "a"}, hosts{"a": "", "b": "a"}, "a", nil, nil},
		"a guest":                 {hosts{"a": "", "b": ""}, hosts{"a": "", "b": "a"}, "ab", []step{{"b", "a"}}, nil},
		"a host without replicas": {hosts{"a": "", "b": ""}, hosts{"a": "", "b": "a"}, "b", []step{{"b", "a"}}, nil},
		"an idle guest":           {hosts{"a": "", "b": ""}, hosts{"a": "", "b": "a"}, "a", []step{{"b", "a"}}, nil},
		"no replica at all":       {hosts{"a": "", "b": ""}, hosts{"a": "", "b": "a"}, "", nil, []string{"b"}},
		"a guest no more":         {hosts{"a": "", "b": "a"}, hosts{"a": "", "b": ""}, "a", []step{{"b", ""}}, nil},
		"another host":            {hosts{"a": "", "b": "a", "c": ""}, hosts{"a": "", "b": "c", "c": ""}, "ac", []step{{"b", ""}}, []string{"b"}},
		"host and guest swap":     {hosts{"a": "", "b": "a"}, hosts{"a": "b", "b": ""}, "a", []step{{"b", ""}}, []string{"a"}},
		"the swap, then":          {hosts{"a": "", "b": ""}, hosts{"a": "b", "b": ""}, "a", []step{{"a", "b"}}, nil},
		"a host of others":        {hosts{"a": "", "b": "", "x": "a"}, hosts{"a": "b", "b": ""}, "ab", nil, []string{"a"}},
		"a host that has one":     {hosts{"a": "x", "b": "", "x": ""}, hosts{"b": "a"}, "ab", nil, []string{"b"}},
		"a host that is not ours": {hosts{"a": "x", "b": "", "x": ""}, hosts{"b": ""}, "ab", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ready := map[string]bool{}
			for _, f := range test.ready {
				ready[string(f)] = true
			}
			got, waits := steps(test.now, test.wanted, ready)
			if !reflect.DeepEqual(got, test.steps) || !slices.Equal(slices.Sorted(maps.Keys(waits)), test.waits) {
				t.Errorf("%v, waits %v; want %v, waits of %v", got, waits, test.steps, test.waits)
			}
		})
	}
}

// TestStepsAnyOrder: from whatever hosts functions have, those that are wanted come in a few rounds, if some of the steps of each are lost or all are done, in
// any order. No host ever has a host, unless it had one at first.
func TestStepsAnyOrder(t *testing.T) {
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 1))
		random := func() map[string]string {
			hosts, names := map[string]string{}, []string{"a", "b", "c", "d", "e"}
			r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
			first := 1 + r.IntN(len(names)-1)
			for i, name := range names {
				hosts[name] = ""
				if i >= first && r.IntN(4) > 0 {
					hosts[name] = names[r.IntN(first)]
				}
			}
			return hosts
		}
		now, wanted, ready := random(), random(), map[string]bool{"a": true, "b": true, "c": true, "d": true, "e": true}
		for round := 0; !maps.Equal(now, wanted); round++ {
			if round > 10 {
				t.Fatalf("seed %d: %v after %d rounds, want %v", seed, now, round, wanted)
			}
			next, _ := steps(now, wanted, ready)
			r.Shuffle(len(next), func(i, j int) { next[i], next[j] = next[j], next[i] })
			if round < 5 && r.IntN(2) == 0 {
				next = next[:r.IntN(len(next)+1)]
			}
			for _, s := range next {
				now[s.function] = s.host
				for guest, host := range now {
					if host != "" && now[host] != "" {
						t.Fatalf("seed %d: after %v, %s serves %s and is served by %s", seed, s, host, guest, now[host])
					}
				}
			}
		}
	}
}
