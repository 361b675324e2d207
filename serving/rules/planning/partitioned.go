package planning

import (
	"math"
	"slices"

	"github.com/gshare-dev/gshare/serving/rules/profile"
)

// allocation is a number of vCPUs for each worker of a stage, with the stage's latency and cost.
type allocation struct {
	cpus    []profile.MilliCPU
	latency profile.Latency
	cost    Cost // of the workers and, once added, of the master while it waits for them
}

// partitionedOptions returns the configurations of a partitioned model for each batch size. PAMBA's ternary search needs an objective
// with one minimum, but billing units turn it into a staircase. Because both cost and p99 latency add up over stages, the choice is a
// knapsack problem: each stage may spend some p99 latency above that of its fastest allocation. Its solution is the best allocation for
// every bound.
func partitionedOptions(m *profile.Partitioned, in *Input) []option {
	all := make([]option, 0, m.Batches()*len(masterWeights)*p99Steps)
	for batch := 1; batch <= m.Batches(); batch++ {
		stages := stageAllocations(m, batch, in)
		for _, weight := range masterWeights {
			for _, workers := range cheapestByP99(addMasterCost(stages, weight*masterRate(m.Master, in))) { // P14
				l := m.Latency(batch, workers)
				all = append(all, option{&Config{Mode: Partitioned, Batch: batch, Workers: workers}, l, partitionedCost(m, batch, workers, l.Mean, in)})
			}
		}
	}
	return all
}

// masterWeights are Lagrange multipliers for the cost of the master function. That cost does not add up over stages, because the sum of
// the stages' times is billed rounded up. For each weight, the unrounded cost of the master times the weight is added to the stages to
// find allocations, which are then billed exactly. Without rounding, weight 1 is exact.
var masterWeights = []Cost{0, 1, 4}

// partitionedCost returns the cost of one batch of a partitioned model (PAMBA, eq. 4.13). The master function is billed until all stages
// have ended, and the call of each worker is billed too.
func partitionedCost(m *profile.Partitioned, batch int, workers [][]profile.MilliCPU, mean profile.Seconds, in *Input) Cost {
	cost := Cost(in.Prices.Call) + masterRate(m.Master, in)*Cost(in.Prices.Quantum.Partitioned.roundUp(mean)) // P10, P15
	for s := range m.Stages {
		for w := range m.Stages[s].Workers {
			one, _ := workerCost(&m.Stages[s].Workers[w], batch, workers[s][w], in)
			cost += one
		}
	}
	return cost
}

func masterRate(m profile.Master, in *Input) Cost {
	return in.Prices.VCPU.rate(m.CPU) + Cost(in.Prices.Memory)*Cost(m.MemoryMiB)/1024
}

// workerCost returns the cost of one call of a stage's worker, and false if no function with c vCPUs has enough memory.
func workerCost(w *profile.CPU, batch int, c profile.MilliCPU, in *Input) (Cost, bool) {
	memory, ok := in.Platform.functionMemory(c, w.Memory.Memory(batch))
	rate := in.Prices.VCPU.rate(c) + in.Prices.Memory.rate(memory)
	return Cost(in.Prices.Call) + rate*Cost(in.Prices.Quantum.Partitioned.roundUp(w.Latency(batch, c).Mean)), ok
}

// stageAllocations returns, for each stage, the allocations of vCPUs to its workers that can be optimal. Workers run in parallel, so for
// each p99 latency every worker uses its cheapest size that is at least as fast.
func stageAllocations(m *profile.Partitioned, batch int, in *Input) [][]allocation {
	stages := make([][]allocation, len(m.Stages))
	for s := range m.Stages {
		var workers [][]allocation
		for w := range m.Stages[s].Workers {
			workers = append(workers, workerAllocations(&m.Stages[s].Workers[w], batch, in))
		}
		for _, candidates := range workers {
			for _, x := range candidates {
				if joint, ok := cheapestWorkers(workers, x.latency.P99); ok {
					stages[s] = append(stages[s], joint)
				}
			}
		}
	}
	return stages
}

// addMasterCost adds the cost of the master function, at the given rate per second, to the allocations of all stages, and returns those
// that no other beats.
func addMasterCost(stages [][]allocation, master Cost) [][]allocation {
	out := make([][]allocation, len(stages))
	for s := range stages {
		out[s] = slices.Clone(stages[s])
		for i := range out[s] {
			out[s][i].cost += master * Cost(out[s][i].latency.Mean)
		}
		out[s] = paretoFront(out[s])
	}
	return out
}

func workerAllocations(w *profile.CPU, batch int, in *Input) []allocation {
	var all []allocation
	for c := in.Platform.MinCPU; c <= in.Platform.MaxCPU; c += in.Platform.CPUStep {
		if cost, ok := workerCost(w, batch, c, in); ok {
			all = append(all, allocation{[]profile.MilliCPU{c}, w.Latency(batch, c), cost})
		}
	}
	return paretoFront(all)
}

// cheapestWorkers returns the allocation that gives each worker its cheapest size within the p99 bound, and false if a worker has none.
func cheapestWorkers(workers [][]allocation, bound profile.Seconds) (allocation, bool) {
	var joint allocation
	for _, candidates := range workers {
		n, _ := slices.BinarySearchFunc(candidates, bound, func(x allocation, bound profile.Seconds) int {
			if x.latency.P99 <= bound {
				return -1
			}
			return 1
		})
		if n == 0 {
			return allocation{}, false
		}
		x := candidates[n-1]
		joint.cpus = append(joint.cpus, x.cpus...)
		joint.latency = profile.Latency{Mean: max(joint.latency.Mean, x.latency.Mean), P99: max(joint.latency.P99, x.latency.P99)}
		joint.cost += x.cost
	}
	return joint, true
}

// p99Steps is the number of steps into which the range of p99 latencies, from the fastest to the cheapest allocations, is divided. The
// p99 of a stage is rounded up to a whole step, so no bound is exceeded and at most one step per stage is wasted.
const p99Steps = 256

// cheapestByP99 returns the cheapest vCPU allocations of all stages for each p99 latency of the whole model, in steps above the fastest.
func cheapestByP99(stages [][]allocation) [][][]profile.MilliCPU {
	part, ok := p99StepLength(stages)
	if !ok {
		return nil
	}
	best := make([]Cost, p99Steps+1+len(stages)) // cost of the stages so far, by the number of steps that they spend at most
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
			continue // the next one is cheaper and spends no more steps
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
