package sweep

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/serving/rules/profile/search"
)

// experiment sweeps a model over vCPUs, fits its latency model to the points of the sweep, and compares the fit with further points that it was
// not fitted to.
type experiment struct {
	from, to   profile.MilliCPU
	batches    []int
	most       int // largest number of points of a batch to which the model is fitted
	heldOut    int // number of points of a batch to which it is not
	executions int // number of executions at each point
}

// measure runs a model with a batch on vCPUs a number of times, and returns how long each execution took.
type measure func(c profile.MilliCPU, batch, executions int) ([]time.Duration, error)

// result is the result of one repeat of an experiment.
type result struct {
	Model   profile.CPU `json:"cpu"`
	Fitted  []point     `json:"fitted"`
	HeldOut []point     `json:"heldOut"`
}

// point is a measurement and what the fitted model predicts for it.
type point struct {
	CPU       profile.MilliCPU `json:"milliCPU"`
	Batch     int              `json:"batch"`
	Measured  profile.Latency  `json:"measured"` // seconds
	Predicted profile.Latency  `json:"predicted"`
}

// run makes the measurements of one repeat.
func (e *experiment) run(m measure) (result, error) {
	strategy := search.Sweep{From: e.from, To: e.to, Batches: e.batches, Most: e.most}
	var trials []search.Trial
	for {
		s, more, err := strategy.Next(trials)
		if err != nil {
			return result{}, err
		}
		if !more {
			break
		}
		p, err := e.point(m, s.Resource.CPU, s.Batch)
		if err != nil {
			return result{}, err
		}
		trials = append(trials, search.Trial{Point: p})
	}
	var fitted, others []profile.Point
	for _, t := range trials {
		fitted = append(fitted, t.Point)
	}
	for _, batch := range e.batches {
		for _, c := range e.between(fitted, batch) {
			p, err := e.point(m, c, batch)
			if err != nil {
				return result{}, err
			}
			others = append(others, p)
		}
	}
	model, _, err := profile.FitCPU(fitted)
	if err != nil {
		return result{}, err
	}
	return result{*model, compare(model, fitted), compare(model, others)}, nil
}

// between returns the vCPUs of the held-out points of a batch: the geometric means of the neighbouring fitted points that have the largest
// ratios.
func (e *experiment) between(fitted []profile.Point, batch int) (all []profile.MilliCPU) {
	var known []profile.MilliCPU
	for _, p := range fitted {
		if p.Batch == batch {
			known = append(known, p.Resource.CPU)
		}
	}
	slices.Sort(known)
	type gap struct{ low, high profile.MilliCPU }
	var gaps []gap
	for i := range known[:len(known)-1] {
		gaps = append(gaps, gap{known[i], known[i+1]})
	}
	width := func(g gap) float64 { return float64(g.high) / float64(g.low) }
	slices.SortStableFunc(gaps, func(a, b gap) int {
		switch {
		case width(a) > width(b):
			return -1
		case width(a) < width(b):
			return 1
		}
		return 0
	})
	for _, g := range gaps[:min(e.heldOut, len(gaps))] {
		all = append(all, profile.MilliCPU(math.Sqrt(float64(g.low)*float64(g.high))))
	}
	slices.Sort(all)
	return all
}

func (e *experiment) point(m measure, c profile.MilliCPU, batch int) (profile.Point, error) {
	took, err := m(c, batch, e.executions)
	if err != nil {
		return profile.Point{}, fmt.Errorf("%g vCPUs, batch %d: %w", float64(c)/1000, batch, err)
	}
	slices.Sort(took)
	sum := time.Duration(0)
	for _, t := range took {
		sum += t
	}
	quantile := func(q float64) time.Duration { return took[int(math.Ceil(q*float64(len(took))))-1] }
	return profile.Point{
		Model: "model", Resource: profile.Resource{CPU: c}, Batch: batch,
		Mean: sum / time.Duration(len(took)), P95: quantile(0.95), P99: quantile(0.99),
	}, nil
}

func compare(model *profile.CPU, points []profile.Point) (all []point) {
	for _, p := range points {
		measured := profile.Latency{Mean: profile.Seconds(p.Mean.Seconds()), P99: profile.Seconds(p.P99.Seconds())}
		all = append(all, point{p.Resource.CPU, p.Batch, measured, model.Latency(p.Batch, p.Resource.CPU)})
	}
	return all
}

// errorsOf returns the mean absolute errors of the predicted means and of the predicted p99, relative to what was measured.
func errorsOf(points []point) (mean, p99 profile.MAPE) {
	for _, p := range points {
		mean += profile.MAPE(math.Abs(float64(p.Predicted.Mean/p.Measured.Mean)-1) / float64(len(points)))
		p99 += profile.MAPE(math.Abs(float64(p.Predicted.P99/p.Measured.P99)-1) / float64(len(points)))
	}
	return mean, p99
}
