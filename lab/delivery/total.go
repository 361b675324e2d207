package delivery

import (
	"context"
	"fmt"
	"time"
)

// Total sums up the results of all GPUs.
type Total struct {
	Pods        int
	WorstShares []float64 // of each GPU
	LongestGap  time.Duration
}

// minServed is the fraction of its quota from which on a pod counts as served.
const minServed = 0.99

// RunAll simulates the GPUs one after another and returns their total.
func RunAll(ctx context.Context, gpus []GPU, s Setting) (Total, error) {
	var total Total
	for k, g := range gpus {
		if err := ctx.Err(); err != nil {
			return Total{}, err
		}
		out, err := Run(g, s)
		if err != nil {
			return Total{}, fmt.Errorf("GPU %d: %w", k, err)
		}
		total.Pods += len(g.Pods)
		total.WorstShares = append(total.WorstShares, out.WorstShare)
		total.LongestGap = max(total.LongestGap, out.LongestGap)
	}
	return total, nil
}

// ServedPercent returns the percentage of GPUs on which every pod got at least 99 % of its quota in each second.
func (t Total) ServedPercent() float64 {
	n := 0
	for _, share := range t.WorstShares {
		if share >= minServed {
			n++
		}
	}
	return 100 * float64(n) / float64(len(t.WorstShares))
}

// MeanWorstShare returns the mean, over all GPUs, of the smallest fraction of its quota that a pod of the GPU got.
func (t Total) MeanWorstShare() float64 {
	sum := 0.0
	for _, share := range t.WorstShares {
		sum += share
	}
	return sum / float64(len(t.WorstShares))
}
