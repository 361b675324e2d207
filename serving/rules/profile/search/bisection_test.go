package search

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// trainer returns a bench of one batch size whose throughput on each step of SMs is given.
func trainer(step share.PerMille, throughput func(share.PerMille) float64) bench {
	b := bench{}
	for sm := step; sm <= share.Whole; sm += step {
		if x := throughput(sm); x > 0 {
			b.add(8, sm, 8/x)
		}
	}
	return b
}

func TestBisection(t *testing.T) {
	for name, c := range map[string]struct {
		throughput     func(share.PerMille) float64
		request, limit share.PerMille
		trials         int
	}{
		"linear":              {func(sm share.PerMille) float64 { return float64(sm) }, 800, 1000, 7},
		"saturates at once":   {func(share.PerMille) float64 { return 10 }, 50, 50, 5},
		"one a second":        {func(share.PerMille) float64 { return 1 }, 50, 50, 5},
		"saturates at 40 %":   {func(sm share.PerMille) float64 { return min(400, float64(sm)) }, 350, 400, 6},
		"runs from 60 % only": {func(sm share.PerMille) float64 { return 10 * float64(sm/600) }, 600, 600, 5},
	} {
		t.Run(name, func(t *testing.T) {
			b := Bisection{Step: 50, Batch: 8}
			history := trainer(50, c.throughput).measure(t, b)
			if got, err := b.Result(history); got != elasticShare(c.request, c.limit, 1<<30) || err != nil || len(history) != c.trials {
				t.Errorf("%v, %v after %d trials, want %d to %d after %d", got, err, len(history), c.request, c.limit, c.trials)
			}
		})
	}
}

// On a throughput that never falls, the search finds what looking at every share finds; on any other, shares that do
// keep their part of the throughput.
func TestBisectionAgainstAll(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 0))
	for range 500 {
		rising, last := random.IntN(2) == 0, 1.0
		table := trainer(20, func(share.PerMille) float64 {
			if rising {
				last += random.ExpFloat64() * float64(random.IntN(2))
				return last
			}
			return 1 + 10*random.Float64()
		})
		b := Bisection{Step: 20, Batch: 8}
		got, err := b.Result(table.measure(t, b))
		if err != nil {
			t.Fatal(err)
		}
		if got.Validate() != nil || got.SMRequest > got.SMLimit {
			t.Fatalf("%v is no share", got)
		}
		for part, sm := range map[float64]share.PerMille{0.80: got.SMRequest, 1: got.SMLimit} {
			keeps := func(sm share.PerMille) bool {
				return table[b.Setting(sm)].Throughput >= part*0.98*table[b.Setting(1000)].Throughput
			}
			if !keeps(sm) || rising && sm > 20 && keeps(sm-20) {
				t.Fatalf("%d per-mille for %.0f %% is not the smallest that suffices", sm, 100*part)
			}
		}
	}
}

func TestBisectionRefuses(t *testing.T) {
	_, _, err := Bisection{Step: 30, Batch: 1}.Next(nil)
	wantField(t, "step", err)
	_, _, err = Bisection{Step: 100}.Next(nil)
	wantField(t, "batch", err)
	b := Bisection{Step: 100, Batch: 8}
	if _, err := b.Result(nil); !errors.Is(err, ErrUnfinished) {
		t.Errorf("without trials: %v", err)
	}
	if _, err := b.Result(bench{}.measure(t, b)); !errors.Is(err, ErrNoSetting) {
		t.Errorf("a model that never runs: %v", err)
	}
}
