package planning

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/test/published"
)

// TestHarmonyBatchModels plans for HarmonyBatch's own models, prices and eight SLOs, in its two modes.
func TestHarmonyBatchModels(t *testing.T) {
	for _, model := range []string{"VGG19", "Bert", "ResNet50"} {
		t.Run(model, func(t *testing.T) {
			m := harmonyModel(t, model)
			saved, least := 0.0, 1.0
			const inputs = 50
			for seed := range uint64(inputs) {
				r := rand.New(rand.NewPCG(seed, 11))
				in := Input{
					Models: []profile.Model{m}, Platform: DefaultPlatform(), Modes: []Mode{CPU, GPU},
					Prices: harmonyPrices(),
				}
				for i := 3; i <= 10; i++ {
					in.Applications = append(in.Applications, Application{fmt.Sprint("app", i), model, profile.Seconds(i) / 10, between(r, 0.1, 20)})
				}
				best, harmony := mustPlan(t, Best, in), mustPlan(t, HarmonyBatch, in)
				if len(best.Infeasible) > 0 {
					t.Fatalf("%+v", best.Infeasible)
				}
				part := 1 - float64(best.Cost/harmony.Cost)
				saved, least = saved+part/inputs, min(least, part)
			}
			t.Logf("%.2f %% below HarmonyBatch in the mean, %.2f %% at least", 100*saved, 100*least)
			if least < -1e-9 {
				t.Error("dearer than HarmonyBatch")
			}
		})
	}
}

func harmonyPrices() PriceList {
	return PriceList{Currency: "CNY", VCPU: 90_000, Memory: 9_000, GPUMemory: 110_000, Call: 900, Quantum: BillingUnits{GPU: 1000}}
}

// TestKnee: below its knee an application is on vCPUs, above on a GPU.
func TestKnee(t *testing.T) {
	m := harmonyModel(t, "VGG19")
	in := Input{Models: []profile.Model{m}, Platform: DefaultPlatform(), Modes: []Mode{CPU, GPU}, Prices: harmonyPrices()}
	o := newOptions(&m, &in, in.Modes)
	knee := o.knee(1)
	below, above := o.provision(demand{1, knee - 2*kneeWidth, 1}), o.provision(demand{1, knee + 2*kneeWidth, 1})
	t.Logf("knee %.2f a second", knee)
	if !(knee > leastKnee+kneeWidth && knee < mostKnee) || below.config.Mode != CPU || above.config.Mode != GPU {
		t.Errorf("knee %v: %s below, %s above", knee, below.config.Mode, above.config.Mode)
	}
}

// curves are the fits of a latency over the vCPUs, one for each batch.
type curves [][3]float64

func (all curves) exponentials() []profile.Exponential {
	var out []profile.Exponential
	for _, c := range all {
		out = append(out, profile.Exponential{Alpha: profile.Seconds(c[0]), Beta: c[1], Gamma: profile.Seconds(c[2])})
	}
	return out
}

// card is the fit of a latency on a GPU.
type card struct {
	L1, L2, T float64
	G         int
}

// harmonyModel returns one of HarmonyBatch's models: VGG19 from its repository, the others from an older one of its authors.
func harmonyModel(t *testing.T, name string) profile.Model {
	t.Helper()
	if name == "VGG19" {
		var models map[string]struct {
			CPU struct {
				Mem      [2]float64
				Avg, Max struct{ Exponential curves }
			}
			GPU struct{ A10 card }
		}
		decode(t, "harmonybatch/model.json", &models)
		m := models[name]
		return modelOf(name, m.CPU.Mem, m.CPU.Avg.Exponential, m.CPU.Max.Exponential, m.GPU.A10)
	}
	var models map[string]struct {
		CPU struct {
			Mem      [2]float64
			Avg, Max curves
		}
		GPU card `json:"GPU_A10"`
	}
	decode(t, "harmonybatch/model_all.json", &models)
	m := models[name]
	return modelOf(name, m.CPU.Mem, m.CPU.Avg, m.CPU.Max, m.GPU)
}

func decode(t *testing.T, name string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(published.Read(t, name)), into); err != nil {
		t.Fatal(err)
	}
}

func modelOf(name string, memory [2]float64, mean, p99 curves, gpu card) profile.Model {
	return profile.Model{
		Name: name,
		CPU:  &profile.CPU{Mean: mean.exponentials(), P99: p99.exponentials(), Memory: profile.Linear{Slope: memory[0], Intercept: memory[1]}},
		GPU: &profile.GPU{
			Exclusive: profile.Linear{Slope: gpu.L1, Intercept: gpu.L2}, Tail: profile.Linear{Slope: 1.2},
			CardGB: gpu.G, TimeSlice: profile.Seconds(gpu.T), HostMemory: profile.Linear{Intercept: 512}, MaxBatch: 32,
		},
	}
}

// kneeExample has functions on vCPUs that cost 10 a request, and a GPU that costs 20 a second and replies within the given time: its knee is at 2 a second.
func kneeExample(reply profile.Seconds) *options {
	return &options{
		byBatch: [][]option{{{&Config{Mode: CPU, Batch: 1, CPU: 1}, profile.Latency{Mean: 0.1, P99: 0.1}, 10}}},
		reserved: []reservedOption{
			{reply: reply, capacity: 1000, cost: 20, perRequest: 0.02},
		},
		configs: []Config{{Mode: Share}},
	}
}

// TestMergeToKnee: consecutive groups on vCPUs merge until they reach the knee of the first, at any cost; groups on a GPU, or that never
// reach it, stay alone.
func TestMergeToKnee(t *testing.T) {
	o := kneeExample(0.2)
	if knee := o.knee(1); knee < 2 || knee > 2+2*kneeWidth {
		t.Fatalf("knee %v, want 2", knee)
	}
	for name, c := range map[string]struct {
		rates []float64
		want  string // rates of the groups
	}{
		"two reach it":     {[]float64{1.5, 1}, "2.5"},
		"three reach it":   {[]float64{0.8, 0.8, 0.8}, "2.4"},
		"none reach it":    {[]float64{0.5, 0.5, 0.5}, "0.5 0.5 0.5"},
		"behind a GPU":     {[]float64{5, 1, 1.5}, "5 2.5"},
		"before a GPU":     {[]float64{1, 5}, "1 5"},
		"one remains":      {[]float64{1.5, 1, 1}, "2.5 1"},
		"exactly the knee": {[]float64{o.knee(1) / 2, o.knee(1) / 2}, fmt.Sprint(o.knee(1))},
	} {
		var sorted []Application
		for i, r := range c.rates {
			sorted = append(sorted, Application{fmt.Sprint(i), "m", 1, r})
		}
		m := kneeMerge{greedyMerge: greedyMerge{o, singleGroups(o, sorted)}}
		for _, a := range sorted {
			m.knees = append(m.knees, o.knee(a.SLO))
		}
		m.mergeToKnee()
		got := ""
		for _, g := range m.groups {
			got += fmt.Sprintf(" %.4g", g.Rate())
		}
		if want := " " + c.want; name != "exactly the knee" && got != want || len(m.groups) != len(strings.Fields(c.want)) || len(m.knees) != len(m.groups) {
			t.Errorf("%s: groups of%s, want %s", name, got, want)
		}
	}
}

// TestMergePairs: neighbours merge if that costs no more, in the first pass only if their rates are on the same side of their knees.
func TestMergePairs(t *testing.T) {
	o := kneeExample(0.2)
	for name, c := range map[string]struct {
		rates            []float64
		sameSide, across int // groups after a pass
	}{
		"one pays for both":          {[]float64{1.9, 5}, 2, 1},
		"both beyond":                {[]float64{5, 5}, 1, 1},
		"both below, together cheap": {[]float64{1.5, 1.5}, 1, 1},
		"both below, for nothing":    {[]float64{0.5, 0.5}, 1, 1},
	} {
		for pass, want := range map[bool]int{true: c.sameSide, false: c.across} {
			var sorted []Application
			for i, r := range c.rates {
				sorted = append(sorted, Application{fmt.Sprint(i), "m", 1, r})
			}
			m := kneeMerge{greedyMerge: greedyMerge{o, singleGroups(o, sorted)}, knees: []float64{o.knee(1), o.knee(1)}}
			if m.mergePairs(pass); len(m.groups) != want {
				t.Errorf("%s, same side %v: %d groups, want %d", name, pass, len(m.groups), want)
			}
		}
	}
	// An urgent application for which the GPU is too slow keeps those on the GPU from being merged with it, as that costs more.
	o = kneeExample(0.3)
	sorted := []Application{{"urgent", "m", 0.25, 5}, {"loose", "m", 1, 50}}
	m := kneeMerge{greedyMerge: greedyMerge{o, singleGroups(o, sorted)}, knees: []float64{o.knee(0.25), o.knee(1)}}
	m.mergePairs(true)
	m.mergePairs(false)
	if len(m.groups) != 2 {
		t.Errorf("merged at a higher cost: %+v", m.groups)
	}
}
