package planning

import (
	"math"

	"github.com/gshare-dev/gshare/serving/rules/batching"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

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
