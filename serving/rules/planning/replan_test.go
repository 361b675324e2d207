package planning

import (
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/gshare-dev/gshare/serving/rules/profile"
)

// TestDrift: something that somebody has changed counts at once, a rate only if it differs by much for long, and by more than chance.
func TestDrift(t *testing.T) {
	rule := ReplanRule{Drift: 0.2, After: time.Minute}
	basis := func(data string, slo profile.Seconds, rates ...float64) Basis {
		b := Basis{Data: data, Applications: map[string]Observed{}}
		for i, rate := range rates {
			b.Applications[string(rune('a'+i))] = Observed{slo, rate}
		}
		return b
	}
	planned := basis("1", 0.1, 10, 0)
	type look struct {
		after time.Duration
		basis Basis
		want  string // part of the reason; empty for none
	}
	for name, looks := range map[string][]look{
		"nothing":          {{0, planned, ""}, {time.Hour, planned, ""}},
		"data":             {{0, basis("2", 0.1, 10, 0), "prices"}},
		"objective":        {{0, basis("1", 0.2, 10, 0), "objective of a went from 0.1 s to 0.2 s"}},
		"another":          {{0, basis("1", 0.1, 10, 0, 1), "c was added"}},
		"one fewer":        {{0, basis("1", 0.1, 10), "b was removed"}},
		"little":           {{0, basis("1", 0.1, 12, 0), ""}, {time.Hour, basis("1", 0.1, 12, 0), ""}},
		"much for long":    {{0, basis("1", 0.1, 13, 0), ""}, {119 * time.Second, basis("1", 0.1, 20, 0), ""}, {120 * time.Second, basis("1", 0.1, 15, 0), "rate of a went from 10 to 15"}},
		"much, then not":   {{0, basis("1", 0.1, 13, 0), ""}, {30 * time.Second, planned, ""}, {60 * time.Second, basis("1", 0.1, 13, 0), ""}, {179 * time.Second, basis("1", 0.1, 13, 0), ""}, {3 * time.Minute, basis("1", 0.1, 13, 0), "rate"}},
		"once a reason":    {{0, basis("1", 0.1, 13, 0), ""}, {2 * time.Minute, basis("1", 0.1, 13, 0), "rate"}, {121 * time.Second, basis("1", 0.1, 13, 0), ""}},
		"less":             {{0, basis("1", 0.1, 7, 0), ""}, {2 * time.Minute, basis("1", 0.1, 7, 0), "from 10 to 7"}},
		"the first of one": {{0, basis("1", 0.1, 10, 0.02), ""}, {2 * time.Minute, basis("1", 0.1, 10, 0.02), "rate of b went from 0 to 0.02"}},
		"a change as well": {{0, basis("1", 0.1, 13, 0), ""}, {30 * time.Second, basis("2", 0.1, 13, 0), "prices"}, {time.Minute, basis("1", 0.1, 13, 0), ""}},
	} {
		t.Run(name, func(t *testing.T) {
			var d Drift
			start := time.Unix(1e9, 0)
			for _, l := range looks {
				if why := d.Due(rule, planned, l.basis, start.Add(l.after)); (why == "") != (l.want == "") || !strings.Contains(why, l.want) {
					t.Errorf("after %v: %q, want %q", l.after, why, l.want)
				}
			}
		})
	}
	t.Run("chance", func(t *testing.T) { // a few requests a minute vary by much
		var d Drift
		rare := basis("1", 0.1, 0.05)
		for _, after := range []time.Duration{0, time.Hour} {
			if why := d.Due(rule, rare, basis("1", 0.1, 0.1), time.Unix(1e9, 0).Add(after)); why != "" {
				t.Error(why)
			}
		}
	})
}

// TestReplanRarely: with Poisson arrivals at an unchanged rate, whose mean of the last minute is looked at each 5 s, nothing is planned again in
// a day, though the mean differs by more than Drift at times; a rate that is half as high again is planned for.
func TestReplanRarely(t *testing.T) {
	const slots = 12 // of 5 s in the minute
	rule := ReplanRule{Drift: 0.2, After: time.Minute}
	for _, test := range []struct {
		planned, rate float64
		often         bool // the mean of a minute differs by more than Drift
		want          int
	}{{0.02, 0.02, true, 0}, {0.3, 0.3, true, 0}, {5, 5, false, 0}, {200, 200, false, 0}, {200, 300, true, 1}, {5, 7.5, true, 1}} {
		planned := Basis{Applications: map[string]Observed{"a": {1, test.planned}}}
		arrivals := distuv.Poisson{Lambda: 5 * test.rate, Src: rand.NewPCG(1, 2)}
		var d Drift
		var window []float64
		due, differs := 0, 0
		for at := range 17280 {
			if window = append(window, arrivals.Rand()); len(window) <= slots {
				continue
			}
			window = window[1:]
			seen := 0.0
			for _, n := range window {
				seen += n / 60
			}
			if math.Abs(seen-test.planned) > rule.Drift*test.planned {
				differs++
			}
			if d.Due(rule, planned, Basis{Applications: map[string]Observed{"a": {1, seen}}}, time.Unix(int64(5*at), 0)) != "" {
				due++
				planned.Applications["a"] = Observed{1, seen}
			}
		}
		if due != test.want || differs > 100 != test.often {
			t.Errorf("%v/s planned for, %v/s come: planned again %d times, want %d; %d means differ", test.planned, test.rate, due, test.want, differs)
		}
	}
}

// TestKeep: a plan that is kept for the input of which it was made is the same plan; for other rates it costs at least what the best plan
// costs, and each of its groups keeps its deadlines.
func TestKeep(t *testing.T) {
	kept, ended := 0, 0
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 11))
		in := randomInput(r, 1+r.IntN(8), coarse())
		best := mustPlan(t, Best, in)
		in.Applications = feasible(in, best)
		if len(in.Applications) == 0 {
			continue
		}
		same, ok, err := Keep(in, best.Groups)
		if err != nil || !ok || math.Abs(float64(same.Cost/best.Cost)-1) > 1e-9 {
			t.Fatalf("seed %d: %v %v %v, planned %v\n%+v", seed, same.Cost, ok, err, best.Cost, best.Groups)
		}
		for i := range same.Groups {
			if !reflect.DeepEqual(same.Groups[i].Config, best.Groups[i].Config) || !reflect.DeepEqual(same.Groups[i].Applications, best.Groups[i].Applications) {
				t.Errorf("seed %d: group %+v, planned %+v", seed, same.Groups[i], best.Groups[i])
			}
		}
		for i := range in.Applications {
			in.Applications[i].Rate *= between(r, 0.3, 3)
		}
		now := mustPlan(t, Best, in)
		later, ok, err := Keep(in, best.Groups)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			ended++
			continue
		}
		kept++
		if float64(later.Cost) < float64(now.Cost)*(1-1e-9) && len(in.Applications) <= exactLimit {
			t.Errorf("seed %d: kept for %v, the best costs %v", seed, later.Cost, now.Cost)
		}
		for _, g := range later.Groups {
			if float64(g.P99) > float64(g.Applications[0].SLO)*(1+1e-9) {
				t.Errorf("seed %d: p99 of %v for an SLO of %v", seed, g.P99, g.Applications[0].SLO)
			}
		}
	}
	if kept < 20 || ended < 5 {
		t.Errorf("%d kept, %d ended: too few of one kind", kept, ended)
	}
}

func feasible(in Input, p Plan) []Application {
	var all []Application
	for _, a := range in.Applications {
		out := false
		for _, x := range p.Infeasible {
			out = out || x.Application.Name == a.Name
		}
		if !out {
			all = append(all, a)
		}
	}
	return all
}

// TestKeepRefuses: groups that are no partition of the applications, or whose configuration the model, the platform or the modes no longer
// have, cannot be kept.
func TestKeepRefuses(t *testing.T) {
	m := randomModel(rand.New(rand.NewPCG(1, 1)))
	for m.Share == nil {
		m = randomModel(rand.New(rand.NewPCG(uint64(len(m.Name)), 7)))
		m.Name += "m"
	}
	m.Name = "m"
	in := Input{
		Models: []profile.Model{m}, Prices: alibaba(), Platform: coarse(), Modes: Modes(),
		Applications: []Application{{"a", "m", 2, 20}, {"b", "m", 4, 10}},
	}
	for _, mode := range Modes() {
		t.Run(string(mode), func(t *testing.T) {
			only := in
			only.Modes = []Mode{mode}
			plan := mustPlan(t, Best, only)
			if len(plan.Infeasible) > 0 {
				t.Fatalf("not feasible: %v", plan.Infeasible)
			}
			for name, change := range map[string]func(in *Input, g []Group) []Group{
				"mode":        func(in *Input, g []Group) []Group { in.Modes = []Mode{otherThan(mode)}; return g },
				"batch":       func(_ *Input, g []Group) []Group { g[0].Config.Batch = 1 << 15; return g },
				"no batch":    func(_ *Input, g []Group) []Group { g[0].Config.Batch = 0; return g },
				"one missing": func(_ *Input, g []Group) []Group { g[0].Applications = g[0].Applications[1:]; return g },
				"one unknown": func(_ *Input, g []Group) []Group { g[0].Applications[0].Name = "c"; return g },
				"one twice":   func(_ *Input, g []Group) []Group { return append(g, g[0]) },
				"no profile":  func(in *Input, g []Group) []Group { in.Models[0] = without(in.Models[0], mode); return g },
				"objective":   func(in *Input, g []Group) []Group { in.Applications[0].SLO = 1e-6; return g },
				"size": func(_ *Input, g []Group) []Group {
					g[0].Config.CPU, g[0].Config.GPUGB, g[0].Config.SM, g[0].Config.Workers = 7, 0, 7, nil
					return g
				},
				"less memory": func(_ *Input, g []Group) []Group { return g },
				"no groups":   func(*Input, []Group) []Group { return nil },
				"second model": func(in *Input, g []Group) []Group {
					x := in.Models[0]
					x.Name = "n"
					in.Models = append(in.Models, x)
					in.Applications[1].Model = "n"
					return g
				},
			} {
				if name == "less memory" || name == "second model" && len(plan.Groups) > 1 {
					continue
				}
				changed := only
				changed.Applications = append([]Application(nil), only.Applications...)
				changed.Models = append([]profile.Model(nil), only.Models...)
				groups := append([]Group(nil), plan.Groups...)
				for i := range groups {
					groups[i].Applications = append([]Application(nil), groups[i].Applications...)
				}
				if _, ok, err := Keep(only, groups); err != nil || !ok {
					t.Fatalf("the plan itself: %v %v", ok, err)
				}
				if _, ok, err := Keep(changed, change(&changed, groups)); ok {
					t.Errorf("%s: kept", name)
				} else if err != nil && name != "no profile" {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

func otherThan(m Mode) Mode {
	if m == CPU {
		return GPU
	}
	return CPU
}

func without(m profile.Model, mode Mode) profile.Model {
	switch mode {
	case CPU:
		m.CPU = nil
	case GPU:
		m.GPU = nil
	case Partitioned:
		m.Partitioned = nil
	case Share:
		m.Share = nil
	}
	return m
}

// TestReplan: a plan is kept while another saves less than asked for, and replaced if it saves more or if it no longer serves all.
func TestReplan(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 11))
	in := randomInput(r, 5, coarse())
	best := mustPlan(t, Best, in)
	in.Applications = feasible(in, best)
	first, err := Replan(in, nil, 0.05)
	if err != nil || !first.Changed || first.Plan.Cost != best.Cost {
		t.Fatalf("%+v %v", first, err)
	}
	separate := mustPlan(t, Separate, in)
	part := 1 - float64(best.Cost/separate.Cost)
	if part <= 0 {
		t.Fatalf("groups save nothing: the test shows nothing")
	}
	for name, test := range map[string]struct {
		present []Group
		saving  float64
		changed bool
	}{
		"the best":         {best.Groups, 0.01, false},
		"saves less":       {separate.Groups, part + 0.01, false},
		"saves more":       {separate.Groups, part - 0.01, true},
		"one of it misses": {best.Groups[1:], 0.99, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Replan(in, test.present, test.saving)
			if err != nil || got.Changed != test.changed || math.Abs(float64(got.Best/best.Cost)-1) > 1e-9 {
				t.Errorf("changed %v, best %v of %v: %v", got.Changed, got.Best, best.Cost, err)
			}
		})
	}
}
