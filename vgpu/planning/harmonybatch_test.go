package planning

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/profile"
)

// TestHarmonyBatchModels plans for HarmonyBatch's own models, prices and eight SLOs, in its two modes (PA-64).
func TestHarmonyBatchModels(t *testing.T) {
	for _, model := range []string{"VGG19", "Bert", "ResNet50"} {
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
		t.Logf("%s: %.2f %% below HarmonyBatch in the mean, %.2f %% at least", model, 100*saved, 100*least)
		if least < -1e-9 {
			t.Errorf("%s: dearer than HarmonyBatch", model)
		}
	}
}

func harmonyPrices() Book {
	return Book{Currency: "CNY", VCPU: 90_000, Memory: 9_000, GPUMemory: 110_000, Call: 900, Quantum: Quanta{GPU: 1000}}
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

func harmonyModel(t *testing.T, name string) profile.Model {
	t.Helper()
	path := filepath.Join("..", "..", "..", "shared", "data", "harmonybatch", "model_all.json")
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		t.Skipf("needs %s, which is not part of the repository", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	var models map[string]struct {
		CPU struct {
			Mem      [2]float64
			Avg, Max [][3]float64
		}
		GPU struct {
			L1, L2, T float64
			G         int
		} `json:"GPU_A10"`
	}
	if err := json.Unmarshal(text, &models); err != nil {
		t.Fatal(err)
	}
	m, ok := models[name]
	if !ok {
		t.Fatalf("%s has no %s", path, name)
	}
	curves := func(all [][3]float64) []profile.Exponential {
		var out []profile.Exponential
		for _, c := range all {
			out = append(out, profile.Exponential{Alpha: profile.Seconds(c[0]), Beta: c[1], Gamma: profile.Seconds(c[2])})
		}
		return slices.Clip(out)
	}
	return profile.Model{
		Name: name,
		CPU:  &profile.CPU{Mean: curves(m.CPU.Avg), P99: curves(m.CPU.Max), Memory: profile.Linear{Slope: m.CPU.Mem[0], Intercept: m.CPU.Mem[1]}},
		GPU: &profile.GPU{
			Exclusive: profile.Linear{Slope: m.GPU.L1, Intercept: m.GPU.L2}, Tail: profile.Linear{Slope: 1.2},
			CardGB: m.GPU.G, TimeSlice: profile.Seconds(m.GPU.T), HostMemory: profile.Linear{Intercept: 512}, MaxBatch: 32,
		},
	}
}
