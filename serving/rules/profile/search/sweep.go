package search

import (
	"math"
	"slices"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Sweep is a strategy that measures a model, or each stage of a split one, over vCPUs and batch sizes for PAMBA's latency models. It
// measures both ends of the range, then halves the widest gap on a logarithmic scale. It ends for a batch size when the curve through the
// earlier trials predicts the last one.
type Sweep struct {
	From, To profile.MilliCPU
	Batches  []int
	Stages   int          // 0: the whole model
	Most     int          // trials per batch size, at least 4
	Error    profile.MAPE // relative error of the prediction that ends the sweep
}

// Next returns the next setting to measure, and false if there is none, iterating over stages and batch sizes.
func (s Sweep) Next(history []Trial) (Setting, bool, error) {
	tried, err := index(s, history)
	if err != nil {
		return Setting{}, false, err
	}
	for stage := min(1, s.Stages); stage <= s.Stages; stage++ {
		for _, batch := range s.Batches {
			if next, more := s.firstUntried(Setting{Stage: stage, Batch: batch}, tried); more {
				return next, true, nil
			}
		}
	}
	return Setting{}, false, nil
}

// firstUntried replays the halving of gaps over the recorded trials of one stage and batch size. It returns the first setting without a
// trial, and false if no more are needed.
func (s Sweep) firstUntried(at Setting, tried results) (Setting, bool) {
	var cpus []profile.MilliCPU // ascending
	var curve []profile.Point   // points that ran, in the order of the trials
	for trial, c := 0, s.To; trial < s.Most; trial++ {
		at.Resource = profile.Resource{CPU: c}
		result, ran := tried[at]
		if !ran {
			return at, true
		}
		if !result.Failed {
			if isPredicted(curve, result.Point, s.Error) {
				return Setting{}, false
			}
			curve = append(curve, result.Point)
		}
		i, _ := slices.BinarySearch(cpus, c)
		cpus = slices.Insert(cpus, i, c)
		if c = s.nextCPU(cpus); slices.Contains(cpus, c) {
			return Setting{}, false
		}
	}
	return Setting{}, false
}

// nextCPU returns the vCPUs to measure next: an end of the range that is missing, or the middle of the widest gap.
func (s Sweep) nextCPU(cpus []profile.MilliCPU) profile.MilliCPU {
	if cpus[0] != s.From {
		return s.From
	}
	middle, ratio := s.From, 1.0
	for i, c := range cpus[1:] {
		if r := float64(c) / float64(cpus[i]); r > ratio {
			middle, ratio = profile.MilliCPU(math.Sqrt(float64(cpus[i])*float64(c))), r
		}
	}
	return middle
}

// isPredicted reports whether the curve through the points predicts the mean latency of p within the given relative error. It needs at
// least three points.
func isPredicted(points []profile.Point, p profile.Point, within profile.MAPE) bool {
	var c []profile.MilliCPU
	var mean []float64
	for _, known := range points {
		c, mean = append(c, known.Resource.CPU), append(mean, known.Mean.Seconds())
	}
	curve, _, err := profile.FitExponential(c, mean)
	if err != nil {
		return false
	}
	measured := p.Mean.Seconds()
	return math.Abs(float64(curve.At(p.Resource.CPU))-measured) <= float64(within)*measured
}

func (s Sweep) validate() error {
	switch {
	case s.From < 1 || s.To < s.From || s.To > maxCPU:
		return share.Invalid("from, to", "%d to %d milli-vCPU is no range within 1 to %d", s.From, s.To, maxCPU)
	case len(s.Batches) == 0:
		return share.Invalid("batches", "there are none")
	case s.Stages < 0 || s.Stages > maxStages:
		return share.Invalid("stages", "%d is outside 0 to %d", s.Stages, maxStages)
	case s.Most < 4 || s.Most > maxTrials:
		return share.Invalid("most", "%d is outside 4 to %d", s.Most, maxTrials)
	case !(s.Error >= 0 && s.Error < 1):
		return share.Invalid("error", "%v is outside 0 to 1", float64(s.Error))
	}
	return checkBatches(s.Batches)
}

const (
	maxStages = 1024
	maxCPU    = profile.MilliCPU(1_000_000)
	maxTrials = 1000
)
