package elastic

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

const ms = time.Millisecond

func compare(t *testing.T, pairs []Pair, s Setting) Ratios {
	t.Helper()
	out, err := RunAll(t.Context(), pairs, s)
	if err != nil {
		t.Fatal(err)
	}
	s.Policy = "exclusive"
	base, err := RunAll(t.Context(), pairs, s)
	if err != nil {
		t.Fatal(err)
	}
	return Compare(out, base)
}

func pairsOf(t *testing.T, kind string) []Pair {
	t.Helper()
	pairs, err := Pairs(kind)
	if err != nil {
		t.Fatal(err)
	}
	return pairs
}

// TestShares checks that the profiles of every pair fit Dilu's bounds: requests within the GPU (Ω), limits within one and a half
// (γ).
func TestShares(t *testing.T) {
	for _, kind := range PairKinds() {
		for _, p := range pairsOf(t, kind) {
			var requests, limits share.PerMille
			for _, f := range p.Of {
				request, limit := f.Shares()
				requests, limits = requests+request, limits+limit
				if request > limit || f.Time(request) < f.Time(limit) {
					t.Errorf("%s asks for %v to %v", f.Name, request, limit)
				}
			}
			if requests > share.Whole || limits > share.Whole*3/2 {
				t.Errorf("%s: requests of %v and limits of %v do not fit a GPU", p.Name, requests, limits)
			}
		}
	}
	if _, err := Pairs("none"); err == nil {
		t.Error("an unknown kind has pairs")
	}
}

// TestAlone checks that a request without neighbours takes the time of the function's kernels under any cap.
func TestAlone(t *testing.T) {
	for _, policy := range []string{"exclusive", "mps-r", "mps-l", "rckm"} {
		p := Pair{"alone", [2]Tenant{{roberta, 1, 1}, {gpt2, 0.001, 1}}}
		out, err := Run(t.Context(), p, Setting{Policy: policy, CV: 0.1, Length: 4 * time.Second, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		want := roberta.Time(smCap(policy, roberta))
		if got := out.Of[0].Percentile(50); got < want || got > want+want/100 {
			t.Errorf("%s: %v, want %v", policy, got, want)
		}
	}
}

// TestArrivals checks mean and variation of the gaps, and that a burst multiplies the rate while it lasts.
func TestArrivals(t *testing.T) {
	for _, cv := range []float64{1, 3, 6} {
		list := Tenant{Rate: 50, Burst: 1}.arrivals(cv, 20_000*time.Second, rand.New(rand.NewPCG(1, 1)))
		var sum, squares float64
		for k := 1; k < len(list); k++ {
			gap := (list[k] - list[k-1]).Seconds()
			sum, squares = sum+gap, squares+gap*gap
		}
		n := float64(len(list) - 1)
		mean := sum / n
		if got := math.Sqrt(squares/n-mean*mean) / mean; math.Abs(got-cv) > cv/20 || math.Abs(mean*50-1) > 0.05 {
			t.Errorf("mean gap %v, variation %v, want %v and %v", mean, got, 1.0/50, cv)
		}
	}
	in, all := 0, Tenant{Rate: 50, Burst: 4}.arrivals(1, 1000*time.Second, rand.New(rand.NewPCG(1, 1)))
	for _, at := range all {
		if at%burstPeriod < burstPeriod/5 {
			in++
		}
	}
	if share := float64(in) / float64(len(all)); math.Abs(share-0.5) > 0.02 { // a fifth of the time at four times the rate
		t.Errorf("%v of the requests come in bursts", share)
	}
}

// TestDeterministic checks that equal seeds have equal outcomes, and that all policies have the same requests.
func TestDeterministic(t *testing.T) {
	p := pairsOf(t, "inference-inference")[1]
	requests := -1
	for _, policy := range Policies() {
		s := Setting{Policy: policy, CV: 2, Length: 3 * time.Second, Seed: 7, Interference: 200}
		a, err := Run(t.Context(), p, s)
		if err != nil {
			t.Fatal(err)
		}
		if b, _ := Run(t.Context(), p, s); !reflect.DeepEqual(a, b) {
			t.Errorf("%s: two runs differ", policy)
		}
		n := len(a.Of[0].Latencies) + len(a.Of[1].Latencies)
		if requests >= 0 && n != requests {
			t.Errorf("%s: %d requests, others had %d", policy, n, requests)
		}
		requests = n
	}
	if _, err := Run(t.Context(), p, Setting{Policy: "none"}); err == nil {
		t.Error("an unknown policy ran")
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := Run(stopped, p, Setting{Policy: "rckm", CV: 1, Length: time.Second}); err == nil {
		t.Error("a stopped run went on")
	}
}

// TestTrainingInference checks that block tokens and the priority of MPS keep latency near that of an exclusive GPU while training
// goes on. Caps at the limits lose latency to long kernels, caps at the requests lose both; tokens alone are better than caps but
// keep neither; the priority of TGS loses the training, and so does the algorithm as printed. The bound of the check is
// below the required 1.28, so that it tells them apart.
func TestTrainingInference(t *testing.T) {
	pairs := pairsOf(t, "training-inference")[1:3]
	s := Setting{CV: 1, Length: 10 * time.Second, Seed: 1}
	for policy, want := range map[string]struct{ latency, training bool }{
		"rckm": {true, true}, "rckm-tokens": {false, false}, "mps-l": {false, true}, "mps-r": {false, false},
		"tgs": {true, false}, "rckm-printed": {false, false},
	} {
		t.Run(policy, func(t *testing.T) {
			s.Policy = policy
			r := compare(t, pairs, s)
			if (r.P95 <= 1.2) != want.latency || (r.Training >= 0.95) != want.training {
				t.Errorf("%+v, want latency kept %v, training kept %v", r, want.latency, want.training)
			}
		})
	}
}

// TestInterference checks that with interference tokens protect inference better than caps, at the cost of training.
func TestInterference(t *testing.T) {
	pairs := pairsOf(t, "training-inference")
	s := Setting{CV: 1, Length: 10 * time.Second, Seed: 1, Interference: 300}
	s.Policy = "rckm"
	tokens := compare(t, pairs, s)
	s.Policy = "mps-l"
	caps := compare(t, pairs, s)
	if tokens.P95 > 0.8*caps.P95 || tokens.Training > caps.Training || tokens.Training < 0.3 {
		t.Errorf("tokens %+v, caps %+v", tokens, caps)
	}
}

// TestSpread checks that requests which differ in length, on a GPU that answers them within a tick or within several, leave training nearly all
// of its throughput where kernels do not interfere, and that the lengths of passes have the spread that was asked for.
func TestSpread(t *testing.T) {
	pairs := pairsOf(t, "training-inference")[:2]
	for _, speed := range []float64{1, 10} {
		r := compare(t, pairs, Setting{Policy: "rckm", CV: 1, Length: 10 * time.Second, Seed: 1, Spread: 0.2, Speed: speed})
		if r.Training < 0.75 || r.P95 > 1.2 {
			t.Errorf("%v times as fast: %+v", speed, r)
		}
	}
	p := Pair{"alone", [2]Tenant{{resnet, 10, 1}, {gpt2, 0.001, 1}}}
	out, err := Run(t.Context(), p, Setting{Policy: "exclusive", CV: 1, Length: 100 * time.Second, Seed: 1, Spread: 0.3, Speed: 100})
	if err != nil {
		t.Fatal(err)
	}
	alone := float64(resnet.faster(100).Time(share.Whole))
	for p, deviations := range map[int]float64{16: -1, 50: 0, 84: 1} {
		if got, want := float64(out.Of[0].Percentile(p)), alone*math.Exp(0.3*deviations); math.Abs(got/want-1) > 0.1 {
			t.Errorf("p%d is %.0f ns, want %.0f", p, got, want)
		}
	}
}

// TestUncapped checks that a cap below what a function can use costs latency in a burst under any tokens. What Dilu gains over
// static caps there comes from exceeding the limit, and disappears where tokens enforce the limit as the cap does.
func TestUncapped(t *testing.T) {
	pairs := pairsOf(t, "inference-inference")[:2]
	for p := range pairs {
		for k := range pairs[p].Of {
			pairs[p].Of[k].SLO = 4.6
		}
	}
	s := Setting{CV: 1, Length: 20 * time.Second, Seed: 1}
	p95 := func(policy string, tokens float64) float64 {
		s.Policy, s.MaxTokens = policy, tokens
		return compare(t, pairs, s).P95
	}
	caps, beyond, within := p95("mps-l", 0), p95("rckm-uncapped", 0.75), p95("rckm-uncapped", 0.5)
	if capped := p95("rckm", 0); capped < 0.99*caps || capped > 1.01*caps {
		t.Errorf("with caps: tokens %v, without %v", capped, caps)
	}
	if beyond > 0.75*caps || within < 0.9*caps {
		t.Errorf("caps %v, tokens of one and a half limits %v, of the limit %v", caps, beyond, within)
	}
}

// TestMaxTokens checks that too few tokens starve both functions, and that a hundred times too many protect no function, as caps
// alone.
func TestMaxTokens(t *testing.T) {
	pairs := pairsOf(t, "training-inference")[2:3]
	s := Setting{Policy: "rckm", CV: 1, Length: 5 * time.Second, Seed: 1, Interference: 300}
	at := map[float64]Ratios{}
	for _, s.MaxTokens = range []float64{0.1, 1, 100} {
		at[s.MaxTokens] = compare(t, pairs, s)
	}
	if at[0.1].P95 < 2*at[1].P95 || at[0.1].Training > 0.5 || at[100].P95 <= at[1].P95 || at[100].Training <= at[1].Training {
		t.Errorf("%+v", at)
	}
}

// TestTrainings checks that two trainings on one GPU make more progress than one after another.
func TestTrainings(t *testing.T) {
	r := compare(t, pairsOf(t, "training-training"), Setting{Policy: "rckm", CV: 1, Length: 2 * time.Second, Seed: 1})
	if r.Training <= 0.5 || r.Training > 1 || !math.IsNaN(r.P95) || !math.IsNaN(r.WorstP95) {
		t.Errorf("%+v", r)
	}
}

func TestPercentile(t *testing.T) {
	s := Served{Latencies: []time.Duration{ms, 2 * ms, 3 * ms, 4 * ms}}
	for p, want := range map[int]time.Duration{1: ms, 25: ms, 50: 2 * ms, 51: 3 * ms, 95: 4 * ms, 100: 4 * ms} {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			if got := s.Percentile(p); got != want {
				t.Errorf("%d percent: %v, want %v", p, got, want)
			}
		})
	}
	if (Served{}).Percentile(50) != 0 {
		t.Error("no requests have a latency")
	}
}
