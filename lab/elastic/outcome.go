package elastic

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"
)

// Outcome is the result of running a pair of functions, in the order of the pair.
type Outcome struct{ Of [2]Served }

// Served is the service that one function of a pair got: passes of a training, or latencies of inference.
type Served struct {
	Passes    float64         // of a training, in the time in which requests arrive
	Latencies []time.Duration // of inference, ascending; requests that were not done count as if at the end
}

func (c *client) served(s Setting) Served {
	if c.Trains {
		return Served{Passes: float64(c.done) / float64(c.waves())}
	}
	for _, at := range c.waiting {
		c.latencies = append(c.latencies, 2*s.Length-at)
	}
	slices.Sort(c.latencies)
	return Served{Latencies: c.latencies}
}

// Percentile returns the latency that p percent of the requests do not exceed, or zero without requests.
func (s Served) Percentile(p int) time.Duration {
	if len(s.Latencies) == 0 {
		return 0
	}
	return s.Latencies[(len(s.Latencies)*p+99)/100-1]
}

// RunAll runs the pairs one after another and returns the outcome of each.
func RunAll(ctx context.Context, pairs []Pair, s Setting) ([]Outcome, error) {
	var list []Outcome
	for _, p := range pairs {
		out, err := Run(ctx, p, s)
		if err != nil {
			return nil, fmt.Errorf("pair %s: %w", p.Name, err)
		}
		list = append(list, out)
	}
	return list, nil
}

// Ratios compares outcomes with those on exclusive GPUs: latencies of inference, throughput of training. A value without data is NaN.
type Ratios struct {
	P50, P95, WorstP95      float64
	Training, WorstTraining float64
}

// Compare returns the ratios of outcomes to those on exclusive GPUs: means over all functions of the pairs, and the worst.
func Compare(of, exclusive []Outcome) Ratios {
	var p50, p95, passes []float64
	for n := range of {
		for k, s := range of[n].Of {
			base := exclusive[n].Of[k]
			switch {
			case base.Passes > 0:
				passes = append(passes, s.Passes/base.Passes)
			case len(base.Latencies) > 0:
				p50 = append(p50, float64(s.Percentile(50))/float64(base.Percentile(50)))
				p95 = append(p95, float64(s.Percentile(95))/float64(base.Percentile(95)))
			}
		}
	}
	return Ratios{mean(p50), mean(p95), extreme(p95, 1), mean(passes), extreme(passes, -1)}
}

func mean(list []float64) float64 {
	sum := 0.0
	for _, x := range list {
		sum += x
	}
	return sum / float64(len(list))
}

// extreme returns the largest value of a list, or with sign -1 the smallest. It returns NaN for an empty list.
func extreme(list []float64, sign float64) float64 {
	worst := math.Inf(-1)
	for _, x := range list {
		worst = max(worst, sign*x)
	}
	if len(list) == 0 {
		return math.NaN()
	}
	return sign * worst
}
