package serving

import (
	"math"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/arrival"
	"github.com/gshare-dev/gshare/serving/rules/planning"
	"github.com/gshare-dev/gshare/serving/rules/profile"
)

// TestPlansKeepTheirSLOs: executions exceed their p99 in one of a hundred cases, so at most one in a hundred requests is late; the
// cost is about what the plan says.
func TestPlansKeepTheirSLOs(t *testing.T) {
	for _, rate := range []float64{0.5, 5, 40} {
		for _, policy := range []string{"gshare", "harmonybatch", "pamba"} {
			in := called(3, rate)
			r := run(t, in, policy)
			plan, err := planning.Best(in.planningInput([]planning.Mode{planning.CPU, planning.GPU}))
			if err != nil {
				t.Fatal(err)
			}
			planned := float64(plan.Cost) * nano * in.Until.Seconds()
			if r.ViolationPercent() > 1.5 || policy == "gshare" && (r.Cost < 0.7*planned || r.Cost > 1.5*planned) {
				t.Errorf("%s at %v a second: %.2f %% missed, cost %.5f, planned %.5f", policy, rate, r.ViolationPercent(), r.Cost, planned)
			}
		}
	}
}

// The drawn times have the mean and the p99 of the profile.
func TestExecutionTimes(t *testing.T) {
	in := called(1, 5)
	w, err := newCallSimulation(in, &clock{}, newRecord(in), []planning.Mode{planning.CPU}, planning.HarmonyBatch)
	if err != nil {
		t.Fatal(err)
	}
	g := w.groups[0]
	l := g.latency(1)
	const n = 20_000
	sum, above := profile.Seconds(0), 0
	for range n {
		x := profile.Seconds(g.executionTime(1).Seconds())
		if sum += x; x > l.P99 {
			above++
		}
	}
	if mean := sum / n; math.Abs(float64(mean/l.Mean)-1) > 0.01 || above < n/100/2 || above > n/100*2 {
		t.Errorf("mean %v and %d of %d above the p99; want %v and 1 %%", mean, above, n, l.Mean)
	}
}

func TestPrice(t *testing.T) {
	g := &group{sim: &callSimulation{prices: planning.PriceList{VCPU: 1000, Memory: 10, GPUMemory: 100, Call: 7, Quantum: planning.BillingUnits{GPU: 100}}}}
	g.plan.Config = planning.Config{Mode: planning.GPU, CPU: 2000, Memory: 3 << 30, GPUGB: 4}
	if got, want := g.price(1, 150*ms), 7+0.2*(2000+30+400); math.Abs(got-want) > 1e-6 {
		t.Errorf("%v, want %v", got, want)
	}
	g.plan.Config.Mode = planning.CPU
	if got, want := g.price(1, 150*ms), 7+0.15*(2000+30); math.Abs(got-want) > 1e-6 {
		t.Errorf("%v, want %v", got, want)
	}
}

// A function without a request is planned for all the same, and an SLO that nothing keeps names its application.
func TestPlansOfOddInput(t *testing.T) {
	in := called(1, 5)
	in.Arrivals = []arrival.Arrival{{At: time.Second}}
	if r := run(t, in, "pamba"); r.Requests != 1 || r.Violations != 0 {
		t.Errorf("%+v", r)
	}
	in.Functions[1].SLO = time.Microsecond
	if _, err := newCallSimulation(in, &clock{}, newRecord(in), []planning.Mode{planning.CPU}, planning.Phases); err == nil {
		t.Error("an SLO that cannot be kept is planned for")
	}
}

// gshare's plan takes no more GPU time than the paper's that takes the least, and is no dearer than that; what is forecast is
// what serving takes. A plan for the bill alone takes more GPU time: the control.
func TestSparing(t *testing.T) {
	control := false
	for _, rate := range []float64{0.5, 2, 3, 8, 20} {
		in := called(1, rate)
		in.Prices.Quantum = planning.BillingUnits{CPU: 100, GPU: 100}
		asked := in.planningInput([]planning.Mode{planning.CPU, planning.GPU})
		plan, err := planWithinGPUTime(asked)
		if err != nil {
			t.Fatal(err)
		}
		paper, err := leastGPUUsage(asked)
		if err != nil {
			t.Fatal(err)
		}
		own, r := planUsage(&asked, &plan), run(t, in, "gshare")
		if own.cards > paper.cards || own.bill > 1.01*paper.bill {
			t.Errorf("at %v a second: %+v, a paper's plan %+v", rate, own, paper)
		}
		seconds := in.Until.Seconds()
		if bill := own.bill * nano * seconds; r.Cost < 0.9*bill || r.Cost > 1.1*bill || math.Abs(r.GPUSeconds-own.cards*seconds) > 0.1*own.cards*seconds {
			t.Errorf("at %v a second: %v was paid and %v GPU-s taken, %v and %v expected", rate, r.Cost, r.GPUSeconds, bill, own.cards*seconds)
		}
		_, cheap, err := planFor(asked, planning.Objective{Late: 0.01})
		if err != nil {
			t.Fatal(err)
		}
		control = control || cheap.cards > paper.cards
	}
	if !control {
		t.Error("the cheapest plan never takes more GPU time: nothing is spared")
	}
}
