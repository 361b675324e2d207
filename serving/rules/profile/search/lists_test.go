package search

import (
	"encoding/json"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

func TestFaSTGrid(t *testing.T) {
	history := bench{}.measure(t, FaSTGrid("V100", 4))
	seen := map[Setting]bool{}
	starts := 0 // of processes, which keep their SMs
	for i, trial := range history {
		seen[trial.setting()] = true
		if i == 0 || trial.setting().Resource.SM != history[i-1].setting().Resource.SM {
			starts++
		}
	}
	if starts != 7 {
		t.Errorf("%d processes are needed for 7 SM shares", starts)
	}
	for _, sm := range []share.PerMille{60, 120, 240, 500, 600, 800, 1000} {
		for quota := share.PerMille(200); quota <= share.Whole; quota += 200 {
			if s := (Setting{Resource: profile.Resource{SM: sm, Quota: quota, Device: "V100"}, Batch: 4}); !seen[s] {
				t.Errorf("no trial of %+v", s)
			}
		}
	}
	corner := Setting{Resource: profile.Resource{SM: 60, Quota: 200, Device: "V100"}, Batch: 4}
	if len(history) != 35 || len(seen) != 35 || !seen[corner] {
		t.Errorf("%d trials of %d settings, want 35; (6 %%, 20 %%): %v", len(history), len(seen), seen[corner])
	}
	for field, g := range map[string]Grid{
		"sm, quota, batches": {Batches: []int{1}},
		"sm":                 {SM: []share.PerMille{0}, Quota: []share.PerMille{1}, Batches: []int{1}},
		"quota":              {SM: []share.PerMille{1}, Quota: []share.PerMille{1001}, Batches: []int{1}},
		"batch":              {SM: []share.PerMille{1}, Quota: []share.PerMille{1}, Batches: []int{2, 0}},
	} {
		_, _, err := g.Next(nil)
		wantField(t, field, err)
	}
}

// On a curve of the model's form four trials suffice; on another form the sweep continues to its end.
func TestSweep(t *testing.T) {
	for name, c := range map[string]struct {
		latency func(vCPU float64) float64
		trials  int
	}{
		"exponential": {func(c float64) float64 { return 0.9*math.Exp(-c/2) + 0.1 }, 4},
		"sawtooth":    {func(c float64) float64 { return 0.1 + math.Mod(7.3*c, 1) }, 9},
	} {
		t.Run(name, func(t *testing.T) {
			s := Sweep{From: 500, To: 16000, Batches: []int{1}, Most: 9, Error: 0.05}
			b := bench{}
			for cpu := s.From; cpu <= s.To; cpu++ {
				p := profile.Point{Model: "m", Resource: profile.Resource{CPU: cpu}, Batch: 1}
				p.Mean = time.Duration(1e9 * c.latency(float64(cpu)/1000))
				b[Trial{Point: p}.setting()] = p
			}
			if history := b.measure(t, s); len(history) != c.trials {
				t.Errorf("%d trials, want %d", len(history), c.trials)
			}
		})
	}
	var order []profile.MilliCPU
	for _, trial := range (bench{}).measure(t, Sweep{From: 500, To: 8000, Batches: []int{1}, Most: 5}) {
		order = append(order, trial.Point.Resource.CPU)
	}
	if want := []profile.MilliCPU{8000, 500, 2000, 1000, 4000}; !slices.Equal(order, want) {
		t.Errorf("vCPUs %v, want %v", order, want)
	}
	s := Sweep{From: 1000, To: 1000, Batches: []int{1, 2}, Stages: 3, Most: 4}
	if n := len(bench{}.measure(t, s)); n != 6 {
		t.Errorf("one vCPU size, two batches, three stages: %d trials, want 6", n)
	}
	for field, broken := range map[string]Sweep{
		"from, to": {From: 2, To: 1, Batches: []int{1}, Most: 4},
		"batches":  {From: 1, To: 1, Most: 4},
		"batch":    {From: 1, To: 1, Most: 4, Batches: []int{0}},
		"stages":   {From: 1, To: 1, Most: 4, Batches: []int{1}, Stages: -1},
		"most":     {From: 1, To: 1, Batches: []int{1}},
		"error":    {From: 1, To: 1, Most: 4, Batches: []int{1}, Error: profile.MAPE(nan())},
	} {
		_, _, err := broken.Next(nil)
		wantField(t, field, err)
	}
}

// FuzzNext calls the strategies with arbitrary histories and parameters.
func FuzzNext(f *testing.F) {
	f.Add([]byte(`[{"Point":{"model":"m","resource":{"sm":100,"quota":1000},"batch":1,"Mean":5}}]`), int64(100), int32(100), 4)
	f.Add([]byte(`[{"Point":{"resource":{"cpu":500},"batch":-1},"Failed":true}]`), int64(-1), int32(-7), 1<<20)
	f.Fuzz(func(t *testing.T, text []byte, slo int64, step int32, n int) {
		var history []Trial
		if json.Unmarshal(text, &history) != nil {
			return
		}
		for _, s := range []Strategy{
			Growth{SLO: time.Duration(slo), Step: share.PerMille(step), MaxBatch: n},
			Growth{SLO: time.Duration(slo), Step: share.PerMille(step), MaxBatch: n, AsReleased: true},
			Bisection{Step: share.PerMille(step), Batch: n},
			Grid{SM: []share.PerMille{share.PerMille(step)}, Quota: []share.PerMille{100}, Batches: []int{n}},
			Sweep{From: profile.MilliCPU(step), To: profile.MilliCPU(slo), Batches: []int{n}, Most: n},
		} {
			next, more, err := s.Next(history)
			if more && err != nil {
				t.Fatalf("%T: both %+v and %v", s, next, err)
			}
			if more && next.Resource.Validate() != nil {
				t.Fatalf("%T names %+v", s, next)
			}
		}
	})
}
