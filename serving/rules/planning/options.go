package planning

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// option is a configuration that is paid per batch, with its latency and cost.
type option struct {
	config  *Config // shared by options: must not be changed
	latency profile.Latency
	cost    Cost // of one batch
}

// options holds the configurations of one model that are the cheapest for some SLO. A group of applications only requires the p99
// latency to be below a bound that depends on the batch size (see demand.maxP99), so a binary search for each batch size finds the
// best configuration exactly.
type options struct {
	byBatch  [][]option       // by batch-1; p99 ascending, cost descending
	reserved []reservedOption // by cost; for none is another at least as good in reply time, capacity and cost
	configs  []Config         // of the reserved options
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
		o.byBatch[b] = paretoFront(o.byBatch[b])
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

func (x option) p99AndCost() (profile.Seconds, Cost)     { return x.latency.P99, x.cost }
func (x allocation) p99AndCost() (profile.Seconds, Cost) { return x.latency.P99, x.cost }

// paretoFront returns the configurations that no other beats in both p99 latency and cost: p99 ascending, cost descending.
func paretoFront[T interface {
	p99AndCost() (profile.Seconds, Cost)
}](all []T) []T {
	slices.SortFunc(all, func(a, b T) int {
		p99A, costA := a.p99AndCost()
		p99B, costB := b.p99AndCost()
		if p99A != p99B {
			return cmp.Compare(p99A, p99B)
		}
		return cmp.Compare(costA, costB)
	})
	kept, least := all[:0], Cost(0)
	for _, x := range all {
		if _, cost := x.p99AndCost(); len(kept) == 0 || cost < least {
			kept, least = append(kept, x), cost
		}
	}
	return kept
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
			all = append(all, cpuOption(m, batch, c, memory, in))
		}
	}
	return all
}

func cpuOption(m *profile.CPU, batch int, c profile.MilliCPU, memory share.Bytes, in *Input) option {
	l := m.Latency(batch, c)
	rate := in.Prices.VCPU.rate(c) + in.Prices.Memory.rate(memory)
	cost := Cost(in.Prices.Call) + rate*Cost(in.objective.billedTime(in.Prices.Quantum.CPU, l))
	return option{&Config{Mode: CPU, Batch: batch, CPU: c, Memory: memory}, l, cost}
}

// gpuOptions returns the configurations on a fraction of a GPU for all batch sizes and all GPU memory sizes that hold the model.
func gpuOptions(m *profile.GPU, in *Input) []option {
	var all []option
	for batch := 1; batch <= m.MaxBatch; batch++ {
		least := max(1, int((m.Memory.Memory(batch)+gb-1)/gb)) // P20
		for g := least; g <= m.CardGB; g++ {
			all = append(all, gpuOption(m, batch, g, in))
		}
	}
	return all
}

func gpuOption(m *profile.GPU, batch, g int, in *Input) option {
	c := profile.MilliCPU(g) * in.Platform.MilliCPUPerGB
	memory := m.HostMemory.Memory(batch)
	l := m.Latency(batch, g)
	rate := in.Prices.VCPU.rate(c) + in.Prices.Memory.rate(memory) + in.Prices.GPUMemory.rate(g)
	cost := Cost(in.Prices.Call) + rate*Cost(in.objective.billedTime(in.Prices.Quantum.GPU, l)) + in.objective.gpuTimeValue(l, g, m.CardGB)
	return option{&Config{Mode: GPU, Batch: batch, GPUGB: g, CPU: c, Memory: memory}, l, cost}
}

// Mode is an execution mode of a model: on what resources it runs, and how they are billed.
type Mode string

// The modes. Profiles and prices determine which is cheaper or faster (P22).
const (
	CPU         Mode = "cpu"         // the whole model in one function on vCPUs
	GPU         Mode = "gpu"         // the whole model in one function that buys some GB of a GPU
	Partitioned Mode = "partitioned" // stages of parallel functions on vCPUs
	Share       Mode = "share"       // the whole model on gshare shares, which are reserved and not paid per call
)

// Modes returns all execution modes.
func Modes() []Mode { return []Mode{CPU, GPU, Partitioned, Share} }

func has(m *profile.Model, mode Mode) bool {
	switch mode {
	case CPU:
		return m.CPU != nil
	case GPU:
		return m.GPU != nil
	case Partitioned:
		return m.Partitioned != nil
	case Share:
		return m.Share != nil
	}
	return false
}

// onGPU reports whether the execution mode needs a GPU.
func (m Mode) onGPU() bool { return m == GPU || m == Share }

// Config is an execution mode with its resources and the maximum batch size. Fields that belong to other modes are zero.
type Config struct {
	Mode  Mode `json:"mode"`
	Batch int  `json:"batch"` // maximum number of requests in a batch

	CPU       profile.MilliCPU     `json:"milliCPU,omitempty"`  // of the function
	Memory    share.Bytes          `json:"memory,omitempty"`    // of the function, or the device memory of the share
	GPUGB     int                  `json:"gpuGB,omitempty"`     // GB of the card's memory
	Workers   [][]profile.MilliCPU `json:"workers,omitempty"`   // by stage
	SM        share.PerMille       `json:"sm,omitempty"`        // of the share
	Quota     share.PerMille       `json:"quota,omitempty"`     // of the share
	Instances int                  `json:"instances,omitempty"` // of a reserved share; 0 if functions are paid per call
}

// String returns the resources as text, such as "0.5 vCPU, 512 MiB".
func (c Config) String() string {
	switch c.Mode {
	case CPU:
		return fmt.Sprintf("%s vCPU, %d MiB", vcpus(c.CPU), c.Memory/share.MiB)
	case GPU:
		return fmt.Sprintf("%d GB of a GPU", c.GPUGB)
	case Partitioned:
		return "vCPU " + stages(c.Workers)
	}
	return fmt.Sprintf("%d x %s SM x %s time, %d MiB", c.Instances, c.SM.Percent(), c.Quota.Percent(), c.Memory/share.MiB)
}

func stages(workers [][]profile.MilliCPU) string {
	var text []string
	for _, stage := range workers {
		var parts []string
		for _, c := range stage {
			parts = append(parts, vcpus(c))
		}
		text = append(text, strings.Join(parts, "+"))
	}
	return strings.Join(text, " | ")
}

func vcpus(c profile.MilliCPU) string { return fmt.Sprintf("%g", float64(c)/1000) }
