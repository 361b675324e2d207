package shapes

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

func mustFill(t *testing.T, policy string, pods []Pod, reserve share.PerMille) int {
	t.Helper()
	gpus, err := Fill(t.Context(), newFleet(t, policy, Config{GPUs: len(pods), Reserve: reserve}), pods)
	if err != nil {
		t.Fatal(err)
	}
	return gpus
}

// meanRatio is GPUs over the bound for 1,000 pods, over ten seeds.
func meanRatio(t *testing.T, policy, family string) float64 {
	t.Helper()
	gpus, bound := 0.0, 0.0
	for seed := range uint64(10) {
		pods := Draw(Families()[family], 1000, 1+seed)
		gpus += float64(mustFill(t, policy, pods, 0))
		bound += LowerBound(pods, 1, 0)
	}
	return gpus / bound
}

// The published packing is reproduced (docs/packing.md), and slots stay close to the bound on all families.
func TestGPUsOverTheBound(t *testing.T) {
	if got := meanRatio(t, "mra", "papermix"); math.Abs(got/1.089-1) > 0.01 {
		t.Errorf("mra, papermix: %.3f of the bound, reported 1.089", got)
	}
	for family, most := range map[string]float64{"papermix": 1.01, "smallgrid": 1.01, "uniform": 1.06, "overhalf": 1.03, "fastgrid": 1.036} {
		t.Run(family, func(t *testing.T) {
			got := meanRatio(t, "slot", family)
			t.Logf("slot, %s: %.4f", family, got)
			if got > most {
				t.Errorf("slot, %s: %.4f of the bound, want at most %.3f", family, got, most)
			}
		})
	}
}

// The reserve costs slots GPUs, yet fewer than rectangles take without one where they were well ahead.
func TestReserveLeavesSlotsAhead(t *testing.T) {
	for _, family := range []string{"papermix", "overhalf"} {
		slots, rectangles := 0, 0
		for seed := range uint64(5) {
			pods := Draw(Families()[family], 1000, 1+seed)
			slots += mustFill(t, "slot", pods, 50)
			rectangles += mustFill(t, "mra", pods, 0)
		}
		if slots >= rectangles {
			t.Errorf("%s: %d GPUs with a reserve, rectangles %d without", family, slots, rectangles)
		}
	}
}

func TestChurnDensity(t *testing.T) {
	for family, least := range map[string]float64{"papermix": 0.90, "overhalf": 0.94} {
		t.Run(family, func(t *testing.T) {
			sum := 0.0
			for seed := range uint64(4) {
				sum += mustChurn(t, "slot", family, 1.1, 1+seed).Density / 4
			}
			t.Logf("%.3f", sum)
			if sum < least {
				t.Errorf("density %.3f, want at least %.2f", sum, least)
			}
		})
	}
}

func mustChurn(t *testing.T, policy, family string, load float64, seed uint64) ChurnResult {
	t.Helper()
	f := newFleet(t, policy, Config{GPUs: 30})
	stay, err := Churn(t.Context(), f, Draw(Families()[family], 5000, seed), load, seed)
	if err != nil {
		t.Fatal(err)
	}
	return stay
}

// Without refusals the density is the load, by Little's law; with an overload, what is not refused.
func TestChurnMeasuresTheLoad(t *testing.T) {
	light := mustChurn(t, "slot", "papermix", 0.3, 1)
	if light.Refused != 0 || math.Abs(light.Density/0.3-1) > 0.08 {
		t.Errorf("at load 0.3: %+v", light)
	}
	heavy := mustChurn(t, "slot", "papermix", 2, 1)
	if accepted := 2 * (1 - heavy.Refused); heavy.Refused < 0.4 || math.Abs(heavy.Density/accepted-1) > 0.08 {
		t.Errorf("at load 2: %+v", heavy)
	}
	if heavy.Density > 1 {
		t.Errorf("density %v", heavy.Density)
	}
}

// Negative control for the density: the same load on a packer that refuses four GPUs' worth in five.
func TestChurnSeesAPoorPacker(t *testing.T) {
	f := newFleet(t, "slot", Config{GPUs: 30})
	f.fresh = newCounted(fitTest{worth: Pod.Area, implies: isAtLeast, admits: func(pods []Pod) bool { return len(pods) < 2 }})
	stay, err := Churn(t.Context(), f, Draw(Families()["papermix"], 3000, 1), 1.1, 1)
	if err != nil || stay.Density > 0.3 {
		t.Errorf("one pod a GPU: %+v, %v", stay, err)
	}
}

func TestSameSeedSameFigures(t *testing.T) {
	for _, policy := range Policies() {
		var stays [2]ChurnResult
		for k := range stays {
			f := newFleet(t, policy, Config{GPUs: 10, Reserve: 50})
			stays[k], _ = Churn(t.Context(), f, Draw(Families()["papermix"], 600, 3), 1.1, 3)
		}
		if stays[0] != stays[1] || stays[0].Density == 0 {
			t.Errorf("%s: %+v", policy, stays)
		}
	}
}

func TestRunsStop(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	pods := Draw(Families()["papermix"], 10, 1)
	if _, err := Fill(ctx, newFleet(t, "slot", Config{GPUs: 10}), pods); !errors.Is(err, context.Canceled) {
		t.Errorf("Fill: %v", err)
	}
	if _, err := Churn(ctx, newFleet(t, "slot", Config{GPUs: 10}), pods, 1, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("Churn: %v", err)
	}
	if _, err := Fill(t.Context(), newFleet(t, "slot", Config{GPUs: 1}), repeat(2, percent(100, 100))); err == nil {
		t.Error("Fill: two whole GPUs on one")
	}
}
