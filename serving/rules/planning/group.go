package planning

import (
	"math"
	"sort"

	"github.com/gshare-dev/gshare/serving/rules/batching"
	"github.com/gshare-dev/gshare/serving/rules/profile"
)

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
