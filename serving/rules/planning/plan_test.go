package planning

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/serving/rules/profile"
)

// TestNeverAboveBaselines: at any number of applications, Best costs at most what PAMBA's phases and HarmonyBatch cost,
// and Phases at most what all alone cost (invariant 13).
func TestNeverAboveBaselines(t *testing.T) {
	saved, compared := 0.0, 0
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 3))
		in := randomInput(r, 1+r.IntN(40), coarse())
		best, phases, harmony := mustPlan(t, Best, in), mustPlan(t, Phases, in), mustPlan(t, HarmonyBatch, in)
		if float64(best.Cost) > float64(phases.Cost)*(1+1e-9) {
			t.Errorf("seed %d: %v, by phases %v", seed, best.Cost, phases.Cost)
		}
		single := mustPlan(t, func(in Input) (Plan, error) { return solve(in, in.Modes, singleGroups) }, in)
		if float64(phases.Cost) > float64(single.Cost)*(1+1e-9) {
			t.Errorf("seed %d: phases %v, all alone %v", seed, phases.Cost, single.Cost)
		}
		if len(harmony.Infeasible) > len(best.Infeasible) {
			continue // it serves fewer
		}
		if float64(best.Cost) > float64(harmony.Cost)*(1+1e-9) {
			t.Errorf("seed %d: %v, HarmonyBatch %v", seed, best.Cost, harmony.Cost)
		}
		if harmony.Cost > 0 {
			saved, compared = saved+1-float64(best.Cost/harmony.Cost), compared+1
		}
	}
	t.Logf("%.1f %% below HarmonyBatch in the mean of %d inputs", 100*saved/float64(compared), compared)
}

func mustPlan(t testing.TB, plan func(Input) (Plan, error), in Input) Plan {
	t.Helper()
	p, err := plan(in)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestEveryGroupKeepsItsDeadlines: every application is in one group or is named as infeasible, and no group's p99 is
// above its tightest SLO.
func TestEveryGroupKeepsItsDeadlines(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 4))
		in := randomInput(r, 1+r.IntN(30), coarse())
		for name, f := range map[string]func(Input) (Plan, error){"best": Best, "phases": Phases, "harmony": HarmonyBatch} {
			p := mustPlan(t, f, in)
			seen := map[string]bool{}
			for _, x := range p.Infeasible {
				seen[x.Application.Name] = true
			}
			for _, g := range p.Groups {
				d := newDemand(g.Applications)
				if g.Config.Mode == Share && 2*g.P99 > d.slo*(1+1e-9) || g.Config.Mode != Share && g.P99 > d.maxP99(g.Config.Batch) {
					t.Errorf("%s, seed %d: %v of p99 %v for %+v", name, seed, g.Config, g.P99, d)
				}
				for i, a := range g.Applications {
					if seen[a.Name] || g.Timeouts[i] < 0 {
						t.Errorf("%s, seed %d: %s is there twice, or has a timeout of %v", name, seed, a.Name, g.Timeouts[i])
					}
					seen[a.Name] = true
				}
			}
			if len(seen) != len(in.Applications) {
				t.Errorf("%s, seed %d: %d of %d applications", name, seed, len(seen), len(in.Applications))
			}
		}
	}
}

// TestDeterministic: the order of the input does not matter (P17).
func TestDeterministic(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 5))
		in := randomInput(r, 1+r.IntN(30), coarse())
		in.Applications = append(in.Applications, Application{"twin1", "m", 2, 1}, Application{"twin2", "m", 2, 1})
		for _, f := range []func(Input) (Plan, error){Best, Phases, HarmonyBatch} {
			want := mustPlan(t, f, in)
			r.Shuffle(len(in.Applications), func(i, j int) { in.Applications[i], in.Applications[j] = in.Applications[j], in.Applications[i] })
			if got := mustPlan(t, f, in); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: another plan after shuffling", seed)
			}
		}
	}
}

// TestMergeByRate is P1: groups merge if they pay less per second together. Alone, the urgent application must pay 1.9 for each request
// and the other one only 1; together all pay 1.9. So whether they merge depends on the price of a call that both pay, and on the rates,
// but not on the sum of the two prices per request, which is always more than the price together.
func TestMergeByRate(t *testing.T) {
	const fast, slow = 1.9, 1.0
	for _, c := range []struct {
		tight, loose float64 // rates
		half         Cost    // of a batch of two on the fast configuration; 0 if there is none
		merged       bool
	}{
		{1, 9, 0, false},
		{9, 1, 0, false},
		{1, 9, 2.1, true}, // 10.5 per second together, 1.9 + 9 apart: one request a second fills no batch of two in time
		{1, 9, 2.17, true},
		{1, 9, 2.2, false}, // 11
		{2, 9, 2.2, true},  // 12.1 together, 3.8 + 9 apart
		{2, 9, 2.4, false}, // 13.2
		{1, 30, 2.1, false},
	} {
		o := &options{byBatch: [][]option{{
			{&Config{Mode: CPU, Batch: 1, CPU: 2}, profile.Latency{Mean: 0.1, P99: 0.1}, fast},
			{&Config{Mode: CPU, Batch: 1, CPU: 1}, profile.Latency{Mean: 1, P99: 1}, slow},
		}}}
		if c.half > 0 {
			o.add([]option{{&Config{Mode: CPU, Batch: 2, CPU: 2}, profile.Latency{Mean: 0.1, P99: 0.1}, c.half}})
		}
		sorted := []Application{{"tight", "m", 0.5, c.tight}, {"loose", "m", 5, c.loose}}
		apart := singleGroups(o, sorted)
		sum := apart[0].Cost + apart[1].Cost
		groups := byPhases(o, sorted)
		if merged := len(groups) == 1; merged != c.merged {
			t.Errorf("%+v: %d groups, which pay %v; apart they pay %v", c, len(groups), total(groups), sum)
		}
		if total(groups) > sum {
			t.Errorf("%+v: pays %v per second, more than %v apart", c, total(groups), sum)
		}
	}
}

// TestPhaseIIKeepsTheGPU is P2: a merge of a group on a GPU is refused if the result would not need one.
func TestPhaseIIKeepsTheGPU(t *testing.T) {
	o := &options{byBatch: [][]option{
		{{&Config{Mode: GPU, Batch: 1, GPUGB: 1}, profile.Latency{Mean: 0.1, P99: 0.1}, 10}},
		{{&Config{Mode: CPU, Batch: 2, CPU: 1}, profile.Latency{Mean: 0.1, P99: 0.1}, 1}},
	}}
	sorted := []Application{{"a", "m", 0.5, 1.5}, {"b", "m", 0.5, 1.5}} // only together do two come within 0.4 s
	groups := singleGroups(o, sorted)
	m := greedyMerge{o, groups}
	if joined := m.join(0, 2); joined.Config.Mode != CPU || joined.Cost >= total(groups) {
		t.Fatalf("the example does not show what it should: %+v", joined)
	}
	if m.phaseII(); len(m.groups) != 2 {
		t.Errorf("merged into %+v", m.groups)
	}
	if best := cheapest(o, sorted); len(best) != 1 {
		t.Errorf("the best plan has no such scruples, but gave %+v", best)
	}
}

// TestInfeasible: what cannot be in time is named, with the SLO that could be kept; the others are planned for.
func TestInfeasible(t *testing.T) {
	in := randomInput(rand.New(rand.NewPCG(1, 6)), 3, coarse())
	in.Applications = append(in.Applications, Application{"hopeless", "m", 1e-6, 1})
	p := mustPlan(t, Best, in)
	if len(p.Infeasible) != 1 || p.Infeasible[0].Application.Name != "hopeless" || !strings.HasPrefix(p.Infeasible[0].Err().Error(), "applications.hopeless.slo: ") {
		t.Fatalf("%+v", p.Infeasible)
	}
	o := newOptions(&in.Models[0], &in, in.Modes)
	in.Applications[3].SLO = o.tightestSLO() * (1 + 1e-9)
	if p = mustPlan(t, Best, in); len(p.Infeasible) != 0 {
		t.Errorf("the promised SLO cannot be kept: %+v", p.Infeasible)
	}
}

// TestCostIsMonotone: a looser SLO never costs more.
func TestCostIsMonotone(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 7))
		in := randomInput(r, 1, coarse())
		slos := []profile.Seconds{0.2, 0.4, 0.8, 1.6, 3.2}
		rates := []float64{0.1, 1, 10, 100}
		frontier, err := Frontier(in, "m", slos, rates)
		if err != nil {
			t.Fatal(err)
		}
		for i := range slos {
			for j := range rates {
				if i > 0 && frontier[i][j].Cost > frontier[i-1][j].Cost {
					t.Errorf("seed %d: SLO %v costs more than %v", seed, slos[i], slos[i-1])
				}
			}
		}
	}
}
