package planning

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gshare-dev/gshare/serving/rules/profile"
)

// sharePlan returns the plan of one application on reserved shares, at the mean time of executions that it needs, and the model.
func sharePlan(t *testing.T, slo profile.Seconds, rate float64) (Group, *profile.Model) {
	t.Helper()
	m := &profile.Model{Name: "m", Share: &profile.Share{
		Curves: []profile.ShareCurve{{SM: 500, Exclusive: profile.Linear{Slope: 0.004, Intercept: 0.006}}},
		Tail:   profile.Linear{Slope: 1.3}, Window: 0.1, Memory: profile.Linear{Slope: 10, Intercept: 900}, MaxBatch: 8,
	}}
	in := Input{
		Models: []profile.Model{*m}, Prices: alibaba(), Platform: DefaultPlatform(), Modes: []Mode{Share},
		Applications: []Application{{"a", "m", slo, rate}},
	}
	p := mustPlan(t, Best, in)
	if len(p.Groups) != 1 {
		t.Fatalf("%+v", p)
	}
	return p.Groups[0], m
}

// TestMisses compares the prediction with queues that are simulated: Poisson arrivals at one instance which runs what waits, up to a batch,
// whenever it is free. No more may be late than predicted, nor may the prediction be beyond what a plan allows.
func TestMisses(t *testing.T) {
	for _, test := range []struct {
		slo  profile.Seconds
		rate float64
	}{{0.08, 20}, {0.15, 100}, {0.3, 300}, {1, 40}} {
		g, m := sharePlan(t, test.slo, test.rate)
		predicted := g.Misses(m)
		late := simulate(g, m, test.rate/float64(g.Config.Instances), 200_000)
		t.Logf("SLO %v, %v/s on %v, batches of %d: %.3f %% late, predicted %.3f %%", test.slo, test.rate, g.Config, g.Config.Batch, 100*late, 100*predicted)
		if late > predicted+0.001 || predicted > 0.03 {
			t.Errorf("%.4f are late, predicted %.4f", late, predicted)
		}
	}
}

// TestMissesRise: the prediction rises with the rate of a plan that is kept, up to all requests, and is what the p99 says where functions are paid
// per call.
func TestMissesRise(t *testing.T) {
	g, m := sharePlan(t, 0.15, 100)
	before := 0.0
	for _, rate := range []float64{1, 50, 100, 200, 400, 1e6} {
		g.Applications[0].Rate = rate
		now := g.Misses(m)
		if now < before || now > 1 {
			t.Errorf("%v at %v/s, less than %v at a lower rate or above 1", now, rate, before)
		}
		before = now
	}
	if before < 0.99 {
		t.Errorf("%v at a million a second", before)
	}
	g.Applications[0].SLO = g.P99 / 2
	if late := g.Misses(m); late != 1 {
		t.Errorf("%v if one batch takes longer than the SLO", late)
	}
	if late := (&Group{Config: Config{Mode: CPU}, Applications: g.Applications}).Misses(m); late != 0.01 {
		t.Errorf("%v on vCPUs", late)
	}
}

// simulate returns the part of requests that is late.
func simulate(g Group, m *profile.Model, rate float64, requests int) float64 {
	r := rand.New(rand.NewPCG(5, 6))
	l := m.Share.Latency(g.Config.Batch, 0, g.Config.Quota)
	spread := float64(l.P99-l.Mean) / (math.Log(100) - 1)
	fixed := float64(l.Mean) - spread
	arrivals := make([]float64, requests)
	at := 0.0
	for i := range arrivals {
		at += r.ExpFloat64() / rate
		arrivals[i] = at
	}
	free, late := 0.0, 0
	for i := 0; i < requests; {
		start := max(free, arrivals[i])
		n := 0
		for i+n < requests && n < g.Config.Batch && arrivals[i+n] <= start {
			n++
		}
		free = start + fixed + r.ExpFloat64()*spread
		for j := i; j < i+n; j++ {
			if free-arrivals[j] > float64(g.Applications[0].SLO) {
				late++
			}
		}
		i += n
	}
	return float64(late) / float64(requests)
}
