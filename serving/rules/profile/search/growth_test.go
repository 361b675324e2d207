package search

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// The search ends where Dilu's code does, after as many trials (D27). With the probes it finds the best setting of
// the whole table, after two trials more.
func TestDiluGrowth(t *testing.T) {
	for model, c := range map[string]struct {
		bound    time.Duration
		batch    int
		sm       share.PerMille
		efficacy float64
		trials   int
	}{
		"resnet152":     {40 * time.Millisecond, 16, 300, 13.345, 9},
		"roberta_large": {60 * time.Millisecond, 4, 200, 3.464, 6},
		"bert_base":     {50 * time.Millisecond, 4, 100, 10.897, 5},
	} {
		t.Run(model, func(t *testing.T) {
			table := diluTable(t, model)
			released := Growth{SLO: 2 * c.bound, Step: 100, MaxBatch: 32, AsReleased: true}
			history := table.measure(t, released)
			got := best(t, released, history)
			if p := got.Point; p.Batch != c.batch || got.Share.SMRequest != c.sm || round(Efficacy(p)) != c.efficacy || len(history) != c.trials {
				t.Errorf("as released: (%d, %d) of %.4f after %d trials, want (%d, %d) of %.3f after %d",
					p.Batch, got.Share.SMRequest, Efficacy(p), len(history), c.batch, c.sm, c.efficacy, c.trials)
			}
			probing := Growth{SLO: 2 * c.bound, Step: 100, MaxBatch: 32}
			more := table.measure(t, probing)
			if p, want := best(t, probing, more).Point, table.exhaustive(c.bound); p != want || len(more) > c.trials+2 {
				t.Errorf("(%d, %v) after %d trials; the best is (%d, %v)", p.Batch, p.Resource, len(more), want.Batch, want.Resource)
			}
		})
	}
}

// Over all bounds the probes lose at most 12 % of the efficacy, and 0.2 % in the mean, where the search as released loses up to 24 %.
func TestDiluGrowthOverBounds(t *testing.T) {
	for _, model := range []string{"resnet152", "roberta_large", "bert_base"} {
		table := diluTable(t, model)
		for _, released := range []bool{true, false} {
			worst, sum, found := 1.0, 0.0, 0
			trials := 0
			for bound := 17 * time.Millisecond; bound <= 400*time.Millisecond; bound += time.Millisecond {
				want := table.exhaustive(bound)
				growth := Growth{SLO: 2 * bound, Step: 100, MaxBatch: 32, AsReleased: released}
				history := table.measure(t, growth)
				got, err := growth.Best(history)
				if want.Batch == 0 && errors.Is(err, ErrNoSetting) {
					continue
				}
				if err != nil {
					t.Fatalf("%s within %v: %v", model, bound, err)
				}
				ratio := Efficacy(got.Point) / Efficacy(want)
				worst, sum, found, trials = min(worst, ratio), sum+ratio, found+1, trials+len(history)
			}
			mean := sum / float64(found)
			t.Logf("%s, released %v: worst %.3f, mean %.4f of the best, %.1f trials", model, released, worst, mean, float64(trials)/float64(found))
			if !released && (worst < 0.88 || mean < 0.998) {
				t.Errorf("%s: worst %.3f, mean %.4f of the best", model, worst, mean)
			}
		}
	}
}

func best(t *testing.T, g Growth, history []Trial) GrowthResult {
	t.Helper()
	found, err := g.Best(history)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func round(x float64) float64 { return float64(int(x*1000+0.5)) / 1000 }

// Whatever the surface, the search ends after few trials with a setting that keeps the SLO, if batch 1 has one;
// trials that come in another order, or twice, change nothing.
func TestGrowthProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	for range 500 {
		table := randomTable(random)
		growth := Growth{SLO: 100 * time.Millisecond, Step: 100, MaxBatch: 32, AsReleased: random.IntN(2) == 0}
		history := table.measure(t, growth)
		if len(history) > 10+2*5+12 {
			t.Fatalf("%d trials of a grid of 60", len(history))
		}
		found, err := growth.Best(history)
		if servable := table.servable(growth.SLO / 2); errors.Is(err, ErrNoSetting) == servable {
			t.Fatalf("error %v although servable is %v", err, servable)
		}
		if err == nil && (found.Point.Mean > growth.SLO/2 || found.Share.SMLimit != min(1000, 2*found.Share.SMRequest)) {
			t.Fatalf("%+v breaks the SLO or the limit", found)
		}
		again := append(slices.Clone(history), history...)
		random.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
		if other, _ := growth.Best(again); other != found {
			t.Fatalf("%+v, in another order %+v", found, other)
		}
		if _, err := growth.Best(history[:len(history)-1]); !errors.Is(err, ErrUnfinished) {
			t.Fatalf("a search without its last trial: %v", err)
		}
	}
}

// The search ends when more batch costs throughput per SM, and its limit is not above all SMs (D26, D27).
func TestGrowthEnds(t *testing.T) {
	falling, needy := bench{}, bench{}
	for batch := 1; batch <= 8; batch *= 2 {
		falling.add(batch, 100, 0.01*float64(batch*batch)) // efficacy 10, 5, 2.5, 1.25
		needy.add(batch, 600, 0.05*float64(batch*batch))
	}
	g := Growth{SLO: 2 * time.Second, Step: 100, MaxBatch: 8, AsReleased: true}
	if history := falling.measure(t, g); len(history) != 2 || best(t, g, history).Point.Batch != 1 {
		t.Errorf("%d trials, want to end after 2 at batch 1", len(history))
	}
	if found := best(t, g, needy.measure(t, g)); found.Share.SMRequest != 600 || found.Share.SMLimit != share.Whole {
		t.Errorf("%+v, want 600 to 1000 per-mille", found)
	}
}

func randomTable(random *rand.Rand) bench {
	table := bench{}
	for batch := 1; batch <= 32; batch *= 2 {
		for sm := share.PerMille(100); sm <= share.Whole; sm += 100 {
			if random.IntN(20) > 0 { // some do not run
				table.add(batch, sm, random.Float64()*0.02*float64(batch)+0.001)
			}
		}
	}
	return table
}

func (b bench) servable(bound time.Duration) bool {
	for s, p := range b {
		if s.Batch == 1 && p.Mean <= bound {
			return true
		}
	}
	return false
}

func TestGrowthRefuses(t *testing.T) {
	good := Growth{SLO: time.Second, Step: 100, MaxBatch: 32}
	point := profile.Point{Model: "m", Resource: profile.Resource{SM: 100, Quota: 1000}, Batch: 1, Mean: 1, Throughput: 1}
	for field, broken := range map[string]func(*Growth, *profile.Point){
		"slo":          func(g *Growth, _ *profile.Point) { g.SLO = 0 },
		"step":         func(g *Growth, _ *profile.Point) { g.Step = -1 },
		"batch":        func(g *Growth, _ *profile.Point) { g.MaxBatch = 0 },
		"mean":         func(_ *Growth, p *profile.Point) { p.Mean = -1 },
		"throughput":   func(_ *Growth, p *profile.Point) { p.Throughput = nan() },
		"resource":     func(_ *Growth, p *profile.Point) { p.Resource.CPU = 1 },
		"resource.cpu": func(_ *Growth, p *profile.Point) { p.Resource = profile.Resource{CPU: -1} },
	} {
		g, p := good, point
		broken(&g, &p)
		_, _, err := g.Next([]Trial{{Point: p}})
		wantField(t, field, err)
		_, err = g.Best([]Trial{{Point: p}})
		wantField(t, field, err)
	}
}

func nan() float64 { zero := 0.0; return zero / zero }

func wantField(t *testing.T, field string, err error) {
	t.Helper()
	if wrong, ok := errors.AsType[*share.FieldError](err); !ok || wrong.Field != field {
		t.Errorf("error %v, want one of field %s", err, field)
	}
}

// TestEfficacy is Dilu's TE: throughput per percent of SMs.
func TestEfficacy(t *testing.T) {
	p := profile.Point{Batch: 4, Mean: 500 * time.Millisecond, Resource: profile.Resource{SM: 200}}
	if got := Efficacy(p); got != 0.4 {
		t.Errorf("%v, want 8 requests a second / 20 %%", got)
	}
}

// TestGrowthProbes: beyond the end of Dilu's code the search tries more SMs for the same batch, or else twice the batch on two steps more,
// and goes on from there (D27).
func TestGrowthProbes(t *testing.T) {
	type trial struct {
		batch   int
		sm      share.PerMille
		seconds float64
	}
	for name, c := range map[string]struct {
		trials             []trial
		batch, released    int
		sm, releasedShares share.PerMille
	}{
		"more SMs": {
			trials: []trial{{1, 100, 0.1}, {2, 100, 0.5}, {1, 200, 0.03}, {1, 300, 0.025}, {1, 400, 0.025}},
			batch:  1, sm: 200, released: 1, releasedShares: 100,
		},
		"more SMs twice": {
			trials: []trial{{1, 100, 0.1}, {2, 100, 0.5}, {1, 200, 0.04}, {1, 300, 0.02}, {1, 400, 0.02}},
			batch:  1, sm: 300, released: 1, releasedShares: 100,
		},
		"twice the batch on two steps more, and again": {
			trials: []trial{{1, 100, 0.1}, {2, 100, 0.15}, {4, 100, 1}, {2, 200, 0.2}, {4, 300, 0.08}, {8, 300, 0.12}, {1, 300, 0.5}},
			batch:  8, sm: 300, released: 2, releasedShares: 100,
		},
		"a small loss is passed": {
			trials: []trial{{1, 100, 0.1}, {2, 100, 0.235}, {4, 100, 0.3}, {8, 100, 0.99}},
			batch:  4, sm: 100, released: 4, releasedShares: 100,
		},
		"a larger loss ends the search": {
			trials: []trial{{1, 100, 0.1}, {2, 100, 0.29}, {4, 100, 0.3}},
			batch:  1, sm: 100, released: 1, releasedShares: 100,
		},
	} {
		t.Run(name, func(t *testing.T) {
			table := bench{}
			for _, x := range c.trials {
				table.add(x.batch, x.sm, x.seconds)
			}
			g := Growth{SLO: 2 * time.Second, Step: 100, MaxBatch: 8}
			if p := best(t, g, table.measure(t, g)).Point; p.Batch != c.batch || p.Resource.SM != c.sm {
				t.Errorf("(%d, %v), want (%d, %v)", p.Batch, p.Resource.SM, c.batch, c.sm)
			}
			g.AsReleased = true
			if p := best(t, g, table.measure(t, g)).Point; p.Batch != c.released || p.Resource.SM != c.releasedShares {
				t.Errorf("as released (%d, %v), want (%d, %v)", p.Batch, p.Resource.SM, c.released, c.releasedShares)
			}
		})
	}
}
