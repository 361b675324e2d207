package planning

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/gshare-dev/gshare/serving/rules/batching"
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

// Objective holds what Expected minimises besides the bill, and the fraction of executions that may take longer than planned.
type Objective struct {
	CardSecond Cost    // value of one second of a whole card beyond its price
	Late       float64 // fraction of executions that may take longer than planned for; 0.01 plans for the p99, as the papers do
}

// Expected returns the plan with the least expected cost. Best assumes full batches and bills each execution as the mean one. Expected
// uses the batch sizes that Poisson arrivals produce before the first request must start, runs each size on its cheapest configuration,
// and rounds up the billed time of each execution separately (except for partitioned models, which consist of many calls: there it
// rounds the time of the mean execution). The groups of the plan have Sizes, and costs include Objective.CardSecond. Errors are
// *share.FieldError.
func Expected(in Input, aim Objective) (Plan, error) {
	if err := aim.validate(); err != nil {
		return Plan{}, err
	}
	in.objective = &aim
	return solve(in, in.Modes, groupByExpectedCost)
}

func (a *Objective) validate() error {
	switch {
	case !(a.CardSecond >= 0 && a.CardSecond <= maxPrice): // NaN too
		return share.Invalid("cardSecond", "%v is outside 0 to %g", float64(a.CardSecond), float64(maxPrice))
	case !(a.Late >= 1e-9 && a.Late <= 0.5):
		return share.Invalid("late", "%v is outside 1e-09 to 0.5", a.Late)
	}
	return nil
}

func groupByExpectedCost(o *options, sorted []Application) []Group {
	return cheapest(newExpectedProvisioner(o), sorted)
}

// billedTime returns the billed time of a batch: its expected value, or that of the mean execution if there is no objective.
func (a *Objective) billedTime(q Milliseconds, l profile.Latency) profile.Seconds {
	if a == nil {
		return q.roundUp(l.Mean)
	}
	return q.meanRoundedUp(l)
}

// gpuTimeValue returns the value, beyond its price, of the GPU time of an execution on gb of a card's memory.
func (a *Objective) gpuTimeValue(l profile.Latency, gb, cardGB int) Cost {
	if a == nil {
		return 0
	}
	return a.CardSecond * Cost(l.Mean) * Cost(gb) / Cost(cardGB)
}

// setQuantile replaces the p99 latency of each option by the quantile that Objective.Late selects.
func (a *Objective) setQuantile(options []option) {
	for i := range options {
		if a != nil {
			options[i].latency.P99 = options[i].latency.Quantile(a.Late)
		}
	}
}

// Size is the configuration that runs batches of one size, and the expected cost of such a batch.
type Size struct {
	Config Config `json:"config"`
	Cost   Cost   `json:"nano"`
}

// boundedSizes holds, for one bound on the p99 latency, the cheapest configuration for each batch size. It ends with the size that has
// the least cost per request, because larger batches would save nothing.
type boundedSizes struct {
	bound profile.Seconds
	sizes []*option // by batch-1
}

// expectedProvisioner selects configurations by expected cost. It holds the cheapest configurations for each distinct p99 latency, and
// the reserved ones, which are paid by the second.
type expectedProvisioner struct {
	bounds  []boundedSizes
	options *options
}

func newExpectedProvisioner(o *options) *expectedProvisioner {
	m := &expectedProvisioner{options: o}
	seen := map[profile.Seconds]bool{}
	for _, options := range o.byBatch {
		for i := range options {
			if bound := options[i].latency.P99; !seen[bound] {
				seen[bound] = true
				m.bounds = append(m.bounds, boundedSizes{bound, o.cheapestSizes(bound)})
			}
		}
	}
	return m
}

func (o *options) cheapestSizes(bound profile.Seconds) []*option {
	var sizes []*option
	least, most := Cost(math.Inf(1)), 0
	for n := range o.byBatch {
		x := o.cheapestWithin(n+1, bound)
		if x == nil {
			break
		}
		sizes = append(sizes, x)
		if each := x.cost / Cost(n+1); each < least {
			least, most = each, n+1
		}
	}
	return sizes[:most]
}

// provision returns the configuration, or one per batch size, that serves a group of applications at the least expected cost.
func (m *expectedProvisioner) provision(d demand) choice {
	best, of := choice{cost: Cost(math.Inf(1))}, -1
	for i := range m.bounds {
		x := &m.bounds[i]
		if len(x.sizes) == 0 || x.bound > d.slo {
			continue
		}
		if cost := x.expectedCost(d); cost < best.cost {
			best.cost, of = cost, i
		}
	}
	if of >= 0 {
		best = m.bounds[of].choice(best.cost)
	}
	return m.options.reserveIfCheaper(d, best)
}

// expectedCost returns the expected cost per second of a group's batches, which close when they are full or after the group's equivalent
// timeout.
func (m *boundedSizes) expectedCost(d demand) Cost {
	cost, size := 0.0, 0.0
	for n, p := range batching.BatchSizes(d.rate*float64(d.timeout-m.bound), len(m.sizes)) {
		cost, size = cost+p*float64(m.sizes[n-1].cost), size+p*float64(n)
	}
	return Cost(d.rate * cost / size)
}

func (m *boundedSizes) choice(cost Cost) choice {
	full := m.sizes[len(m.sizes)-1]
	c := choice{config: full.config, latency: profile.Latency{Mean: full.latency.Mean, P99: m.bound}, cost: cost}
	for _, x := range m.sizes {
		c.sizes = append(c.sizes, Size{*x.config, x.cost})
	}
	return c
}

// Group is a set of applications that one deployment serves with one batching policy.
type Group struct {
	Applications []Application   `json:"applications"` // by SLO, then rate, then name
	Config       Config          `json:"config"`
	P99          profile.Seconds `json:"p99"`             // of a batch's execution
	Cost         Cost            `json:"nanoPerSecond"`   // nano-units of currency
	Sizes        []Size          `json:"sizes,omitempty"` // by batch-1: the configuration for a batch that is not full; if empty, all batches use Config

	Timeouts []profile.Seconds `json:"timeouts"` // how long requests of each application may wait for a batch
}

// Rate returns the sum of the arrival rates of all applications, in requests per second.
func (g *Group) Rate() float64 {
	sum := 0.0
	for _, a := range g.Applications {
		sum += a.Rate
	}
	return sum
}

// demand holds what a group of applications requires of its configuration: the tightest SLO, the total rate and the equivalent timeout.
type demand struct {
	slo     profile.Seconds // the tightest SLO of all applications
	rate    float64
	timeout profile.Seconds // equivalent to the SLOs of all applications, if executions took no time
}

// maxP99 returns the highest p99 latency with which batches of the given size meet the SLOs. A request may wait for its SLO less the p99
// at most. The batch must also fill: with rate R and equivalent timeout T, floor(R*T) + 1 requests leave together. T is the equivalent
// timeout of the SLOs, less the p99, because shifting all timeouts shifts their equivalent by the same time.
func (d demand) maxP99(batch int) profile.Seconds {
	return min(d.slo, d.timeout-profile.Seconds(float64(batch-1)/d.rate))
}

func newDemand(sorted []Application) demand {
	var e batching.TimeoutAccumulator
	for _, a := range sorted {
		e.Add(batching.Class{Timeout: float64(a.SLO), Rate: a.Rate})
	}
	return demand{sorted[0].SLO, e.Rate(), profile.Seconds(e.Timeout())}
}

// choice is the configuration that a provisioner selected for a group of applications, with its latency and cost.
type choice struct {
	config    *Config // nil if nothing is fast enough
	instances int     // number of reserved shares
	latency   profile.Latency
	cost      Cost   // per second; infinite if nothing is fast enough
	sizes     []Size // by batch-1; set by an expectedProvisioner
}

func (c choice) feasible() bool { return c.config != nil }

// provisioner selects the cheapest configuration for a group of applications. Type options applies the cost model of the papers,
// expectedProvisioner the expected cost.
type provisioner interface {
	provision(demand) choice
}

// provision returns the cheapest configuration of any mode that meets the SLOs of a group of applications.
func (o *options) provision(d demand) choice {
	best := choice{cost: Cost(math.Inf(1))}
	for b := range o.byBatch {
		x := o.cheapestWithin(b+1, d.maxP99(b+1))
		if x == nil {
			continue
		}
		if cost := x.cost * Cost(d.rate) / Cost(b+1); cost < best.cost {
			best = choice{config: x.config, latency: x.latency, cost: cost}
		}
	}
	return o.reserveIfCheaper(d, best)
}

// cheapestWithin returns the cheapest configuration that is paid per batch and runs a batch of the given size within a p99 bound, or nil.
func (o *options) cheapestWithin(batch int, bound profile.Seconds) *option {
	all := o.byBatch[batch-1]
	n := sort.Search(len(all), func(i int) bool { return all[i].latency.P99 > bound })
	if n == 0 {
		return nil
	}
	return &all[n-1]
}

// reserveIfCheaper returns the cheapest configuration that is reserved and paid by the second, with as many instances as the rate
// needs, if it costs less than the given choice. Otherwise it returns that choice.
func (o *options) reserveIfCheaper(d demand, best choice) choice {
	for i := range o.reserved {
		x := &o.reserved[i]
		if x.cost >= best.cost {
			break
		}
		if x.reply > d.slo || x.perRequest*Cost(d.rate) >= best.cost { // a lower bound: as if fractions of instances could be bought
			continue
		}
		instances := math.Ceil(d.rate / x.capacity)
		if cost := x.cost * Cost(instances); cost < best.cost && instances <= maxInstances {
			best = choice{config: &o.configs[x.config], instances: int(instances), latency: x.latency, cost: cost}
		}
	}
	return best
}

const maxInstances = 1e6

func newGroup(sorted []Application, c choice) Group {
	g := Group{Applications: sorted, P99: c.latency.P99, Cost: c.cost, Sizes: c.sizes}
	if c.config != nil {
		g.Config = *c.config
		g.Config.Instances = c.instances
	}
	for _, a := range sorted {
		g.Timeouts = append(g.Timeouts, a.SLO-c.latency.P99) // P7
	}
	return g
}
