package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/gshare-dev/gshare/cmd/gshare-lab/internal/report"
	"github.com/gshare-dev/gshare/cmd/internal/chart"
	"github.com/gshare-dev/gshare/lab/elastic"
	"github.com/gshare-dev/gshare/vgpu/share"
	"github.com/gshare-dev/gshare/vgpu/token"
)

// elasticSimulation holds the flags and results of gshare-lab simulate elastic, which runs two functions on one GPU.
type elasticSimulation struct {
	kind, pair            string
	seconds, interference int
	load, slo             float64
	setting               elastic.Setting
	pairs                 []elastic.Pair
	exclusive             map[elasticRun][]elastic.Outcome
	sweep                 sweep       // p95 by variation
	sweeps                func() bool // reports whether a chart is requested
}

// elasticRun identifies one sequence of requests, which every policy serves: its random seed and the coefficient of variation of the gaps
// between requests.
type elasticRun struct {
	seed uint64
	cv   float64
}

// elasticLong is the help, in which NODE stands for the token policies of a node.
const elasticLong = `Run two functions on one GPU, as in Dilu's section 5.2, and compare them with one GPU each. The shares follow from the functions'
profiles by Dilu's rules. Functions and GPU are models: kernels run in waves on free SMs. Contention for anything but SMs (bandwidth,
caches) is set by --interference.

--policy is rckm (Dilu's block tokens, corrected, with MPS caps at the limits and best effort at MPS's lower priority), rckm-tokens
(rckm without the priority), rckm-gaps (rckm if the host does not report when a batch ends), rckm-printed (the algorithm as printed
in the paper), rckm-uncapped (rckm without the caps: only tokens enforce limits), exclusive (one GPU each), mps-l and mps-r (only MPS
caps, at the limits or at the requests), NODE (time tokens at the limits; if these do not fit together, the window is divided by
the requests), tgs (priority as in TGS: the second function gets what the first leaves, with a rate that halves and grows).

Figures of each run, as means over the functions of all pairs, compared with exclusive GPUs:
  p50_ratio, p95_ratio     latency of inference
  worst_p95_ratio          maximum over the functions
  training_percent         throughput of training
  worst_training_percent   minimum over the trainings

With --plot, the policies also run with variations from 1 to 6 (not for two trainings).`

func simulateElastic() *simulation {
	e := &elasticSimulation{exclusive: map[elasticRun][]elastic.Outcome{}, sweep: sweep{}}
	s := &simulation{
		name: "elastic", short: "Share a GPU elastically between two functions, and measure latency and throughput", long: strings.ReplaceAll(elasticLong, "NODE", names(token.Policies())),
		example:  "  gshare-lab simulate elastic --policy all\n  gshare-lab simulate elastic --policy rckm,mps-l,mps-r --cv 6 --runs 3 -o json\n  gshare-lab simulate elastic --pair gpt2-large+roberta-large --max-tokens 0.1",
		policies: elastic.Policies(), flags: e.flags, prepare: e.prepare, run: e.run, chart: e.chart,
	}
	e.sweeps = func() bool { return s.plot != "" }
	return s
}

func (e *elasticSimulation) flags(f *pflag.FlagSet) {
	f.StringVar(&e.kind, "kind", elastic.PairKinds()[0], strings.Join(elastic.PairKinds(), ", "))
	f.StringVar(&e.pair, "pair", "all", "pair of the kind, or all")
	f.Float64Var(&e.setting.CV, "cv", 1, "coefficient of variation of the gaps between requests: gamma distributed, 1 is Poisson")
	f.Float64Var(&e.load, "load", 1, "requests per second, as a multiple of the rates in Dilu's figures")
	f.Float64Var(&e.slo, "slo", 3, "SLO of inference, as a multiple of its time on a whole GPU; with its requested share, inference takes at most half of the SLO")
	f.IntVar(&e.seconds, "seconds", 60, "time in which requests arrive, in seconds; requests that wait at the end are served")
	f.Float64Var(&e.setting.MaxTokens, "max-tokens", 0, "MaxTokens of the rckm policies, as a multiple of what a function without neighbours needs to launch its request; 0 to calibrate")
	f.Float64Var(&e.setting.Spread, "spread", 0, "how much the times of requests differ: standard deviation of their logarithm")
	f.Float64Var(&e.setting.Speed, "speed", 1, "how many times as fast the GPU is: at 10, inference takes 1 to 7 ms")
	f.IntVar(&e.interference, "interference", 0, "slowdown of kernels in percent while neighbours fill the rest of the GPU")
}

func (e *elasticSimulation) prepare() error {
	pairs, err := elastic.Pairs(e.kind)
	if err != nil {
		return fmt.Errorf("--kind: %w", err)
	}
	e.pairs = slices.DeleteFunc(pairs, func(p elastic.Pair) bool { return e.pair != "all" && p.Name != e.pair })
	for i := range e.pairs {
		for k := range e.pairs[i].Of {
			t := &e.pairs[i].Of[k]
			t.Rate, t.SLO = t.Rate*e.load, e.slo
		}
	}
	s := &e.setting
	switch {
	case e.sweeps() && e.kind == "training-training":
		return errors.New("--plot: two trainings have no latency to draw")
	case len(e.pairs) == 0:
		return fmt.Errorf("--pair: %q is not one of %s", e.pair, e.kind)
	case !(s.CV >= 0.1 && s.CV <= 10):
		return fmt.Errorf("--cv: %v is not between 0.1 and 10", s.CV)
	case !(e.load >= 0.1 && e.load <= 10):
		return fmt.Errorf("--load: %v is not between 0.1 and 10", e.load)
	case !(e.slo >= 2 && e.slo <= 20):
		return fmt.Errorf("--slo: %v is not between 2 and 20", e.slo)
	case e.seconds < 1 || e.seconds > maxSeconds:
		return fmt.Errorf("--seconds: %d is not between 1 and %d", e.seconds, maxSeconds)
	case !(s.MaxTokens >= 0 && s.MaxTokens <= 1e4):
		return fmt.Errorf("--max-tokens: %v is not between 0 and 10000", s.MaxTokens)
	case !(s.Spread >= 0 && s.Spread <= 1):
		return fmt.Errorf("--spread: %v is not between 0 and 1", s.Spread)
	case !(s.Speed >= 0.1 && s.Speed <= 20):
		return fmt.Errorf("--speed: %v is not between 0.1 and 20", s.Speed)
	case e.interference < 0 || e.interference > 1000:
		return fmt.Errorf("--interference: %d is not between 0 and 1000", e.interference)
	}
	s.Length, s.Interference = time.Duration(e.seconds)*time.Second, share.PerMille(10*e.interference)
	return nil
}

func (e *elasticSimulation) run(ctx context.Context, policy string, seed uint64) ([]report.Figure, error) {
	base, err := e.baseline(ctx, seed, e.setting.CV)
	if err != nil {
		return nil, err
	}
	out, err := e.serve(ctx, policy, seed, e.setting.CV)
	if err == nil && e.sweeps() {
		err = e.addSweep(ctx, policy, seed)
	}
	if err != nil {
		return nil, err
	}
	r := elastic.Compare(out, base)
	var figures []report.Figure
	for _, f := range []report.Figure{
		{Name: "p50_ratio", Value: r.P50, Digits: 3},
		{Name: "p95_ratio", Value: r.P95, Digits: 3},
		{Name: "worst_p95_ratio", Value: r.WorstP95, Digits: 3},
		{Name: "training_percent", Value: 100 * r.Training, Digits: 1},
		{Name: "worst_training_percent", Value: 100 * r.WorstTraining, Digits: 1},
	} {
		if !math.IsNaN(f.Value) {
			figures = append(figures, f)
		}
	}
	return figures, nil
}

// baseline returns the outcome if each function has a GPU of its own. It is computed once per seed and variation, for all policies.
func (e *elasticSimulation) baseline(ctx context.Context, seed uint64, cv float64) ([]elastic.Outcome, error) {
	run := elasticRun{seed, cv}
	if base, ok := e.exclusive[run]; ok {
		return base, nil
	}
	base, err := e.serve(ctx, "exclusive", seed, cv)
	e.exclusive[run] = base
	return base, err
}

func (e *elasticSimulation) serve(ctx context.Context, policy string, seed uint64, cv float64) ([]elastic.Outcome, error) {
	s := e.setting
	s.Policy, s.Seed, s.CV = policy, seed, cv
	return elastic.RunAll(ctx, e.pairs, s)
}

// elasticCVs holds the coefficients of variation, of the gaps between requests, on the X axis of the chart, as in Dilu's figure 10 (N-D5).
var elasticCVs = []float64{1, 2, 3, 4, 5, 6}

// addSweep runs a policy at each coefficient of variation in elasticCVs and adds its p95 ratios to the chart.
func (e *elasticSimulation) addSweep(ctx context.Context, policy string, seed uint64) error {
	return e.sweep.add(policy, elasticCVs, func(cv float64) (float64, error) {
		base, err := e.baseline(ctx, seed, cv)
		if err != nil {
			return 0, err
		}
		out, err := e.serve(ctx, policy, seed, cv)
		if err != nil {
			return 0, err
		}
		return elastic.Compare(out, base).P95, nil
	})
}

func (e *elasticSimulation) chart(summaries []report.Summary) *chart.Chart {
	return &chart.Chart{
		Title: "Two functions on one GPU, " + e.kind, X: "coefficient of variation of the gaps between requests",
		Y: "p95 of inference, over that of exclusive GPUs", Lines: e.sweep.lines(summaries),
	}
}
