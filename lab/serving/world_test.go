package serving

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/arrival"
	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/serving/rules/planning"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// vertical returns a function that is faster on more SMs, up to 600: 100 requests a second on 300 in batches of 4.
func vertical(name string) Function {
	f := Function{Name: name, SLO: 120 * ms, LoadCold: 5 * time.Second, LoadWarm: 500 * ms, Memory: 4 << 30}
	for _, sm := range []share.PerMille{100, 200, 300, 400, 500, 600, 1000} {
		for _, batch := range []int{1, 2, 4, 8, 16} {
			work := time.Duration(4+2*batch) * 300 * ms / 300
			f.Points = append(f.Points, point(batch, sm, 12*ms+work*900/time.Duration(min(sm, 600))))
		}
	}
	return f
}

// onGPUs returns an input with functions that share GPUs, at the given rates per second.
func onGPUs(gpus int, seed uint64, rates ...[]float64) *Input {
	in := &Input{GPUs: gpus, GPUMemory: 40 << 30, Prices: planning.PriceList{Slice: 500_000, SliceMemory: 1500}, Seed: seed}
	var sources []arrival.Source
	for i, counts := range rates {
		in.Functions = append(in.Functions, vertical(string(rune('a'+i))))
		sources = append(sources, arrival.Source{Series: &arrival.Series{Step: time.Second, Counts: counts}, Scale: 1})
		in.Until = max(in.Until, time.Duration(len(counts))*time.Second)
	}
	in.Arrivals = arrival.Draw(sources, in.Until, seed)
	return in
}

// bursts returns a rate per second that alternates between calm periods and bursts of random length, of up to twice the
// load.
func bursts(seconds int, seed uint64) []float64 {
	random := rand.New(rand.NewPCG(seed, 9))
	var counts []float64
	for len(counts) < seconds {
		calm, burst, height := 20+random.IntN(40), 5+random.IntN(15), 150+random.Float64()*150
		for range calm {
			counts = append(counts, 130+40*random.Float64())
		}
		for range burst {
			counts = append(counts, height*(0.8+0.4*random.Float64()))
		}
	}
	return counts[:seconds]
}

func run(t testing.TB, in *Input, policy string) Result {
	t.Helper()
	r, err := Run(context.Background(), in, policy)
	if err != nil {
		t.Fatalf("%s: %v", policy, err)
	}
	return r
}

// cutGPUs returns an input with a function of three equal components, each 40 ms on one compute slice, on GPUs with the same
// MIG profiles.
func cutGPUs(gpus int, memory share.Bytes, rate float64, profiles ...string) *Input {
	in := &Input{MIG: MIG{Model: "A100-80GB"}, Prices: planning.PriceList{Slice: 500_000}, Until: 5 * time.Minute}
	for range gpus {
		in.MIG.GPUs = append(in.MIG.GPUs, profiles)
	}
	g := &pipeline.Function{Name: "f", Transfer: 10 * ms}
	for i, name := range []string{"a", "b", "c"} {
		node := pipeline.Node{Name: name, Memory: memory, Times: map[string]time.Duration{"1g.10gb": 40 * ms, "2g.20gb": 20 * ms, "3g.40gb": 15 * ms, "4g.40gb": 12 * ms}}
		if i > 0 {
			node.After = []string{g.Nodes[i-1].Name}
		}
		g.Nodes = append(g.Nodes, node)
	}
	in.Functions = []Function{{Name: "f", SLO: 200 * ms, LoadCold: 5 * time.Second, LoadWarm: 500 * ms, Graph: g}}
	source := arrival.Source{Series: &arrival.Series{Step: in.Until, Counts: []float64{rate * in.Until.Seconds()}}, Scale: 1}
	in.Arrivals = arrival.Draw([]arrival.Source{source}, in.Until, 1)
	return in
}

// called returns an input with two applications of one model on functions billed per call.
func called(seed uint64, rate float64) *Input {
	curve := func(gamma profile.Seconds) []profile.Exponential {
		return []profile.Exponential{{Alpha: 1, Beta: 0.4, Gamma: gamma}, {Alpha: 1.5, Beta: 0.4, Gamma: 1.6 * gamma}}
	}
	in := &Input{
		Models: []profile.Model{{
			Name: "m",
			CPU:  &profile.CPU{Mean: curve(0.1), P99: curve(0.15), Memory: profile.Linear{Intercept: 500}},
			GPU: &profile.GPU{
				Exclusive: profile.Linear{Slope: 0.002, Intercept: 0.003}, Tail: profile.Linear{Slope: 1.2}, CardGB: 24, TimeSlice: 0.002,
				Memory: profile.Linear{Intercept: 600}, HostMemory: profile.Linear{Intercept: 512}, MaxBatch: 16,
			},
		}},
		Prices: planning.PriceList{VCPU: 16000, Memory: 2400, GPUMemory: 34000, Call: 120}, Platform: planning.DefaultPlatform(), Until: 5 * time.Minute, Seed: seed,
		Functions: []Function{{Name: "x", SLO: 300 * ms, Model: "m"}, {Name: "y", SLO: time.Second, Model: "m"}},
	}
	s := arrival.Source{Series: &arrival.Series{Step: in.Until, Counts: []float64{rate * in.Until.Seconds()}}, Scale: 1}
	in.Arrivals = arrival.Draw([]arrival.Source{s, s}, in.Until, seed)
	return in
}

func names() (onShares, onSlices, onPlan []string) {
	return []string{"gshare", "eager", "keepalive", "lazy"}, []string{"gshare", "monolithic", "pipelined"}, []string{"gshare", "harmonybatch", "pamba"}
}

// Every request is answered once, refused once, or not answered at all; and equal inputs have equal results.
func TestAccountsAndDeterminism(t *testing.T) {
	shares, migs, calls := names()
	for _, c := range []struct {
		in       func() *Input
		policies []string
	}{
		{func() *Input { return onGPUs(2, 3, bursts(80, 1), bursts(80, 2), bursts(80, 5)) }, shares},
		{func() *Input { return cutGPUs(2, 4<<30, 60, "4g.40gb", "2g.20gb", "1g.10gb") }, migs},
		{func() *Input { return called(1, 20) }, calls},
	} {
		for _, policy := range c.policies {
			t.Run(policy, func(t *testing.T) {
				in := c.in()
				r := run(t, in, policy)
				if r.Requests != len(in.Arrivals) || r.Violations > r.Requests || r.Refused > r.Violations || r.Completed+r.Refused > r.Requests ||
					r.Requests == r.Violations {
					t.Errorf("%+v of %d", r, len(in.Arrivals))
				}
				if r.P50 > r.P95 || r.P95 > r.P99 || r.UsedSeconds > r.GPUSeconds*1.000001 || !(r.Cost > 0) {
					t.Errorf("%+v", r)
				}
				if again := run(t, c.in(), policy); again != r {
					t.Errorf("%+v, then %+v", r, again)
				}
			})
		}
	}
}

func TestNoRequestsNeedNothing(t *testing.T) {
	shares, migs, _ := names()
	for _, policy := range shares {
		if r := run(t, onGPUs(1, 1, make([]float64, 100)), policy); r != (Result{}) {
			t.Errorf("%s: %+v", policy, r)
		}
	}
	for _, policy := range migs {
		in := cutGPUs(1, 1<<30, 1, "1g.10gb")
		in.Arrivals = nil
		if r := run(t, in, policy); r != (Result{}) {
			t.Errorf("%s: %+v", policy, r)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	shares := func(change func(*Input)) *Input { in := onGPUs(1, 1, []float64{5, 5}); change(in); return in }
	migs := func(change func(*Input)) *Input { in := cutGPUs(1, 1<<30, 1, "1g.10gb"); change(in); return in }
	for field, c := range map[string]struct {
		in     *Input
		policy string
	}{
		"functions":                         {shares(func(in *Input) { in.Functions = nil }), "lazy"},
		"functions[0].name":                 {shares(func(in *Input) { in.Functions[0].Name = "" }), "lazy"},
		"functions[0].slo":                  {shares(func(in *Input) { in.Functions[0].SLO = 0 }), "lazy"},
		"functions[0].loadWarm":             {shares(func(in *Input) { in.Functions[0].LoadWarm = time.Minute }), "lazy"},
		"functions[0].memory":               {shares(func(in *Input) { in.Functions[0].Memory = 80 << 30 }), "lazy"},
		"functions[0].points":               {shares(func(in *Input) { in.Functions[0].Points = nil }), "lazy"},
		"functions[0].points[0].batch":      {shares(func(in *Input) { in.Functions[0].Points[0].Batch = 5000 }), "lazy"},
		"functions[0].points[0].throughput": {shares(func(in *Input) { in.Functions[0].Points[0].Throughput = math.NaN() }), "lazy"},
		"gpus":                              {migs(func(*Input) {}), "eager"},
		"duration":                          {shares(func(in *Input) { in.Until = 0 }), "lazy"},
		"arrivals[0]":                       {shares(func(in *Input) { in.Arrivals[0].Function = 7 }), "lazy"},
		"prices.nanoPerSliceSecond":         {shares(func(in *Input) { in.Prices.Slice = 0 }), "gshare"},
		"mig.geometries":                    {shares(func(*Input) {}), "pipelined"},
		"mig.model":                         {migs(func(in *Input) { in.MIG.Model = "T4" }), "pipelined"},
		"mig.geometries: GPU 0.[0]":         {migs(func(in *Input) { in.MIG.GPUs[0] = []string{"9g.90gb"} }), "pipelined"},
		"mig.geometries: GPU 0.profiles":    {migs(func(in *Input) { in.MIG.GPUs[0] = []string{"4g.40gb", "4g.40gb"} }), "pipelined"},
		"functions[0].graph":                {migs(func(in *Input) { in.Functions[0].Graph = nil }), "monolithic"},
		"models":                            {shares(func(*Input) {}), "pamba"},
	} {
		t.Run(field, func(t *testing.T) {
			_, err := Run(context.Background(), c.in, c.policy)
			var got *share.FieldError
			if !errors.As(err, &got) || got.Field != field {
				t.Errorf("%v, want an error of %s", err, field)
			}
		})
	}
	if _, err := Run(context.Background(), onGPUs(1, 1, []float64{1}), "magic"); err == nil {
		t.Error("a policy that nobody knows runs")
	}
	tight := shares(func(in *Input) { in.Functions[0].SLO = ms })
	if _, err := Run(context.Background(), tight, "lazy"); err == nil {
		t.Error("an SLO that no profile point keeps is accepted")
	}
}

func TestRunStops(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, onGPUs(1, 1, make([]float64, 10)), "lazy"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v after it was cancelled", err)
	}
}
