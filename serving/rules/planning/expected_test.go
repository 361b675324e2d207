package planning

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// The expected bill is the mean of what executions are billed, each rounded up.
func TestExpectedBill(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 4))
	for range 50 {
		l := profile.Latency{Mean: profile.Seconds(between(r, 0.02, 0.5))}
		l.P99 = l.Mean * profile.Seconds(between(r, 1, 6))
		q, sum := Milliseconds(100), profile.Seconds(0)
		const n = 20_000
		for range n {
			sum += q.roundUp(l.Mean - l.Spread() + l.Spread()*profile.Seconds(r.ExpFloat64()))
		}
		if got := q.meanRoundedUp(l); math.Abs(float64(got/(sum/n))-1) > 0.02 {
			t.Errorf("%+v: %v, drawn %v", l, got, sum/n)
		}
		if got := Milliseconds(0).meanRoundedUp(l); got != l.Mean {
			t.Errorf("without rounding %v of %v", got, l.Mean)
		}
	}
}

// The expected cost of a menu is what batches cost that are drawn: opened by a request, closed when full or in time.
func TestExpectedFill(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 4))
	for range 30 {
		m := boundedSizes{bound: 0.1}
		for n := range 1 + r.IntN(12) {
			m.sizes = append(m.sizes, &option{cost: Cost(100 + between(r, 10, 60)*float64(n))})
		}
		d := demand{slo: 1, rate: between(r, 0.5, 30), timeout: profile.Seconds(between(r, 0.1, 1))}
		cost, served := 0.0, 0.0
		for range 20_000 {
			n := 1
			for at := r.ExpFloat64() / d.rate; n < len(m.sizes) && at < float64(d.timeout-m.bound); at += r.ExpFloat64() / d.rate {
				n++
			}
			cost, served = cost+float64(m.sizes[n-1].cost), served+float64(n)
		}
		if got, want := float64(m.expectedCost(d)), cost/served*d.rate; math.Abs(got/want-1) > 0.02 {
			t.Errorf("%d sizes, %+v: %v, drawn %v", len(m.sizes), d, got, want)
		}
	}
}

// The higher GPU time is valued, the less of it a plan takes; a plan with fewer late executions never costs less.
func TestExpectedAim(t *testing.T) {
	spared := false
	for seed := range uint64(40) {
		r := rand.New(rand.NewPCG(seed, 5))
		in := randomInput(r, 1+r.IntN(6), coarse())
		in.Modes = []Mode{CPU, GPU, Partitioned}
		card := func(worth Cost) float64 { return cards(&in, mustExpect(t, in, Objective{worth, 0.01})) }
		free, dear := card(0), card(1e9)
		if dear > free*(1+1e-9) {
			t.Errorf("seed %d: %v cards, and %v where they are worth a fortune", seed, free, dear)
		}
		spared = spared || dear < free
		usual, rare := mustExpect(t, in, Objective{0, 0.01}), mustExpect(t, in, Objective{0, 0.001})
		if len(rare.Infeasible) == len(usual.Infeasible) && rare.Cost < usual.Cost*(1-1e-9) {
			t.Errorf("seed %d: %v at the p99, %v at the p99.9", seed, usual.Cost, rare.Cost)
		}
		for _, g := range usual.Groups {
			if len(g.Sizes) != g.Config.Batch || g.P99 > g.Applications[0].SLO {
				t.Errorf("seed %d: %+v", seed, g)
			}
		}
	}
	if !spared {
		t.Error("no plan takes less GPU time, whatever that is worth")
	}
}

func TestExpectedRefuses(t *testing.T) {
	in := randomInput(rand.New(rand.NewPCG(1, 6)), 1, coarse())
	for field, aim := range map[string]Objective{"cardSecond": {-1, 0.01}, "late": {0, math.NaN()}} {
		t.Run(field, func(t *testing.T) {
			_, err := Expected(in, aim)
			var got *share.FieldError
			if !errors.As(err, &got) || got.Field != field {
				t.Errorf("%v, want an error of %s", err, field)
			}
		})
	}
}

func mustExpect(t *testing.T, in Input, aim Objective) Plan {
	t.Helper()
	return mustPlan(t, func(in Input) (Plan, error) { return Expected(in, aim) }, in)
}

// cards returns the mean number of GPUs that a plan keeps busy: the increase of its cost when a GPU-second is worth one unit
// more.
func cards(in *Input, p Plan) float64 {
	sum := 0.0
	for _, g := range p.Groups {
		m := boundedSizes{bound: g.P99}
		for _, x := range g.Sizes {
			card := Cost(0)
			if c := x.Config; c.Mode == GPU {
				card = Cost(in.Models[0].GPU.Latency(c.Batch, c.GPUGB).Mean) * Cost(c.GPUGB) / Cost(in.Models[0].GPU.CardGB)
			}
			m.sizes = append(m.sizes, &option{cost: card})
		}
		sum += float64(m.expectedCost(newDemand(g.Applications)))
	}
	return sum
}
