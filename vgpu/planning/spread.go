package planning

import (
	"math"

	"github.com/gshare-dev/gshare/vgpu/profile"
)

// p99Steps is the number of steps into which the range of p99 latencies, from the fastest to the cheapest allocations, is divided. The
// p99 of a stage is rounded up to a step, so no bound is exceeded, and at most one step per stage is wasted.
const p99Steps = 256

// cheapestByP99 returns the cheapest vCPU allocations of all stages for each p99 latency of the whole model, in steps above the fastest.
func cheapestByP99(stages [][]allocation) [][][]profile.MilliCPU {
	part, ok := p99StepLength(stages)
	if !ok {
		return nil
	}
	best := make([]Cost, p99Steps+1+len(stages)) // of the stages so far, by the parts that they spend at most
	chosen := make([][]int, len(stages))
	for s, sizings := range stages {
		best, chosen[s] = addStage(best, sizings, part)
	}
	var all [][][]profile.MilliCPU
	for spent := range best {
		if spent > 0 && best[spent] == best[spent-1] {
			continue
		}
		all = append(all, backtrack(stages, chosen, spent, part))
	}
	return all
}

// p99StepLength returns the length of one of the p99Steps in seconds, and false if a stage has no allocation.
func p99StepLength(stages [][]allocation) (profile.Seconds, bool) {
	var span profile.Seconds
	for _, sizings := range stages {
		if len(sizings) == 0 {
			return 0, false
		}
		span += sizings[len(sizings)-1].latency.P99 - sizings[0].latency.P99
	}
	return max(span, 1e-9) / p99Steps, true
}

func addStage(before []Cost, sizings []allocation, part profile.Seconds) (best []Cost, chosen []int) {
	best, chosen = make([]Cost, len(before)), make([]int, len(before))
	for i := range best {
		best[i] = Cost(math.Inf(1))
	}
	for i, x := range sizings {
		own := extraSteps(sizings, i, part)
		if i+1 < len(sizings) && extraSteps(sizings, i+1, part) == own {
			continue // the next is cheaper, and spends no more
		}
		for spent := own; spent < len(best); spent++ {
			if cost := before[spent-own] + x.cost; cost < best[spent] {
				best[spent], chosen[spent] = cost, i
			}
		}
	}
	return best, chosen
}

// extraSteps returns the number of p99 steps, rounded up, by which allocation i of a stage is slower than the fastest.
func extraSteps(sizings []allocation, i int, part profile.Seconds) int {
	more := float64((sizings[i].latency.P99 - sizings[0].latency.P99) / part)
	return int(math.Ceil(more))
}

func backtrack(stages [][]allocation, chosen [][]int, spent int, part profile.Seconds) [][]profile.MilliCPU {
	workers := make([][]profile.MilliCPU, len(stages))
	for s := len(stages) - 1; s >= 0; s-- {
		i := chosen[s][spent]
		workers[s] = stages[s][i].cpus
		spent -= extraSteps(stages[s], i, part)
	}
	return workers
}
