package planning

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/profile"
)

// option is a configuration that is paid per batch, with its latency and cost.
type option struct {
	config  *Config // shared: not to be changed
	latency profile.Latency
	cost    Cost // of one batch
}

// options holds the configurations of one model that are the cheapest for some SLO. A group of applications only requires that the p99
// latency is below a bound that depends on the batch size (see demand.maxP99), so a binary search for each size finds the best
// configuration exactly.
type options struct {
	byBatch  [][]option       // by batch-1; p99 ascending, cost descending
	reserved []reservedOption // by cost; none as fast, as able and as cheap as another
	configs  []Config         // of those held
}

func newOptions(m *profile.Model, in *Input, modes []Mode) *options {
	o := &options{}
	for _, mode := range modes {
		if !has(m, mode) {
			continue
		}
		switch mode {
		case CPU:
			o.add(cpuOptions(m.CPU, in))
		case GPU:
			o.add(gpuOptions(m.GPU, in))
		case Partitioned:
			o.add(partitionedOptions(m.Partitioned, in))
		case Share:
			o.reserved, o.configs = reservedOptions(m.Share, in)
		}
	}
	for b := range o.byBatch {
		in.objective.setQuantile(o.byBatch[b])
		o.byBatch[b] = paretoOptions(o.byBatch[b])
	}
	return o
}

func (o *options) add(all []option) {
	for _, x := range all {
		for len(o.byBatch) < x.config.Batch {
			o.byBatch = append(o.byBatch, nil)
		}
		o.byBatch[x.config.Batch-1] = append(o.byBatch[x.config.Batch-1], x)
	}
}

// paretoOptions returns the options that no other beats in both p99 latency and cost.
func paretoOptions(all []option) []option {
	slices.SortFunc(all, func(a, b option) int {
		return fasterThenCheaper(a.latency, b.latency, a.cost, b.cost)
	})
	kept := all[:0]
	for _, x := range all {
		if len(kept) == 0 || x.cost < kept[len(kept)-1].cost {
			kept = append(kept, x)
		}
	}
	return kept
}

func fasterThenCheaper(a, b profile.Latency, costA, costB Cost) int {
	if a.P99 != b.P99 {
		return cmp.Compare(a.P99, b.P99)
	}
	return cmp.Compare(costA, costB)
}

// cpuOptions returns the configurations on vCPUs for all function sizes and batch sizes, with their cost (PAMBA, eq. 4.12).
func cpuOptions(m *profile.CPU, in *Input) []option {
	var all []option
	for batch := 1; batch <= len(m.Mean); batch++ {
		for c := in.Platform.MinCPU; c <= in.Platform.MaxCPU; c += in.Platform.CPUStep {
			memory, ok := in.Platform.functionMemory(c, m.Memory.Memory(batch))
			if !ok {
				continue
			}
			l := m.Latency(batch, c)
			rate := in.Prices.VCPU.rate(c) + in.Prices.Memory.rate(memory)
			cost := Cost(in.Prices.Call) + rate*Cost(in.objective.billedTime(in.Prices.Quantum.CPU, l))
			all = append(all, option{&Config{Mode: CPU, Batch: batch, CPU: c, Memory: memory}, l, cost})
		}
	}
	return all
}

// gpuOptions returns the configurations on a fraction of a GPU for all batch sizes and all GPU memory sizes that hold the model.
func gpuOptions(m *profile.GPU, in *Input) []option {
	var all []option
	for batch := 1; batch <= m.MaxBatch; batch++ {
		least := max(1, int((m.Memory.Memory(batch)+gb-1)/gb)) // P20
		for g := least; g <= m.CardGB; g++ {
			c := profile.MilliCPU(g) * in.Platform.MilliCPUPerGB
			memory := m.HostMemory.Memory(batch)
			l := m.Latency(batch, g)
			rate := in.Prices.VCPU.rate(c) + in.Prices.Memory.rate(memory) + in.Prices.GPUMemory.rate(g)
			cost := Cost(in.Prices.Call) + rate*Cost(in.objective.billedTime(in.Prices.Quantum.GPU, l)) + in.objective.gpuTimeValue(l, g, m.CardGB)
			all = append(all, option{&Config{Mode: GPU, Batch: batch, GPUGB: g, CPU: c, Memory: memory}, l, cost})
		}
	}
	return all
}
