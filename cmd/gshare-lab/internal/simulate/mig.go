package simulate

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"github.com/gshare-dev/gshare/cmd/gshare-lab/internal/report"
	"github.com/gshare-dev/gshare/cmd/internal/chart"
	"github.com/gshare-dev/gshare/lab/migchurn"
	"github.com/gshare-dev/gshare/vgpu/mig"
)

// migSimulation holds the flags and results of gshare-lab simulate mig, which creates MIG instances on demand.
type migSimulation struct {
	mix, model string
	load       migchurn.Load
	sweep      sweep       // accepted percent over offered load
	sweeps     func() bool // reports whether a chart is requested
}

func simulateMIG() *simulation {
	m := &migSimulation{sweep: sweep{}}
	s := &simulation{
		name:  "mig",
		short: "Create and delete MIG instances, and count the requests that fit",
		long: "Create and delete MIG instances. A policy chooses the GPU and the memory slice of each instance; running instances are\n" +
			"never moved. accepted_percent is the part of the requested compute slices that were created. With --plot, the policies also\n" +
			"run at loads from 0.7 to 1.3.",
		example:  "  gshare-lab simulate mig --mix uniform --load 1.1 --policy all --runs 10",
		policies: migchurn.Policies,
		flags:    m.addFlags,
		prepare:  m.prepare,
		run:      m.run,
		chart:    m.chart,
	}
	m.sweeps = func() bool { return s.plot != "" }
	return s
}

func (m *migSimulation) addFlags(f *pflag.FlagSet) {
	f.StringVar(&m.mix, "mix", "uniform", "frequencies of the sizes: uniform, small or mid")
	f.Float64Var(&m.load.Offered, "load", 1.1, "compute slices requested at a time, as a multiple of the compute slices of the GPUs")
	f.IntVar(&m.load.GPUs, "gpus", 60, "number of GPUs")
	f.IntVar(&m.load.Requests, "requests", 20000, "number of requests; the first quarter is not counted")
	f.StringVar(&m.model, "model", "A100-80GB", "GPU model: "+strings.Join(migModels(), ", "))
}

func migModels() (names []string) {
	for _, m := range mig.Models() {
		names = append(names, m.Name)
	}
	return names
}

func (m *migSimulation) prepare() (err error) {
	if m.load.Model, err = mig.ModelNamed(m.model); err != nil {
		return fmt.Errorf("--model: %w", err)
	}
	if m.load.Mix, err = migchurn.MixNamed(m.mix); err != nil {
		return fmt.Errorf("--mix: %w", err)
	}
	if err := m.load.Check(); err != nil {
		return fmt.Errorf("--%w", err)
	}
	return nil
}

func (m *migSimulation) run(_ context.Context, policy string, seed uint64) ([]report.Figure, error) {
	result, err := m.play(policy, seed, m.load.Offered)
	if err == nil && m.sweeps() {
		err = m.addSweep(policy, seed)
	}
	return []report.Figure{
		{Name: "accepted_percent", Value: result.AcceptedPercent(), Digits: 2},
		{Name: "mean_busy_percent", Value: 100 * result.MeanBusy, Digits: 2},
		{Name: "requests", Value: float64(result.Requests)},
		{Name: "accepted", Value: float64(result.Accepted)},
		{Name: "offered_slices", Value: float64(result.OfferedSlices)},
		{Name: "accepted_slices", Value: float64(result.AcceptedSlices)},
	}, err
}

func (m *migSimulation) play(policy string, seed uint64, offered float64) (migchurn.Result, error) {
	choose, err := migchurn.PolicyNamed(policy, m.load.Model)
	if err != nil {
		return migchurn.Result{}, err
	}
	load := m.load
	load.Seed, load.Offered = seed, offered
	return migchurn.Run(load, choose)
}

// sweepLoads holds the offered loads on the X axis of the chart.
var sweepLoads = []float64{0.7, 0.8, 0.9, 1, 1.1, 1.2, 1.3}

// addSweep runs a policy at each load in sweepLoads and adds the results to the chart.
func (m *migSimulation) addSweep(policy string, seed uint64) error {
	return m.sweep.add(policy, sweepLoads, func(offered float64) (float64, error) {
		result, err := m.play(policy, seed, offered)
		return result.AcceptedPercent(), err
	})
}

func (m *migSimulation) chart(summaries []report.Summary) *chart.Chart {
	return &chart.Chart{
		Title: fmt.Sprintf("MIG instances on %d %s, mix %s", m.load.GPUs, m.model, m.mix),
		X:     "offered load", Y: "accepted compute slices, percent of those requested", Lines: m.sweep.lines(summaries),
	}
}
