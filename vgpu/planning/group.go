package planning

import (
	"math"
	"sort"

	"github.com/gshare-dev/gshare/vgpu/batching"
	"github.com/gshare-dev/gshare/vgpu/profile"
)

// Group is applications that one deployment serves with one batch policy.
type Group struct {
	Applications []Application   `json:"applications"` // by SLO, then rate, then name
	Config       Config          `json:"config"`
	P99          profile.Seconds `json:"p99"`             // of a batch's execution
	Cost         Cost            `json:"nanoPerSecond"`   // of money
	Sizes        []Size          `json:"sizes,omitempty"` // by batch-1: what runs a batch that is not full. None: Config

	Timeouts []profile.Seconds `json:"timeouts"` // of each application's requests, before a batch must start (P7)
}

// Rate returns the requests of all applications, a second.
func (g *Group) Rate() float64 {
	sum := 0.0
	for _, a := range g.Applications {
		sum += a.Rate
	}
	return sum
}

// demand is all that provisioning needs to know of a group.
type demand struct {
	slo     profile.Seconds // the tightest (PA-18)
	rate    float64
	timeout profile.Seconds // equivalent to the SLOs, were execution instant
}

// bound returns the p99 up to which batches of a size may be used. The tightest SLO bounds it (PA-18, P7: a request waits at
// most its SLO less the p99). And the batch must fill: with rate R and an equivalent timeout T, floor(R*T) + 1 requests
// leave together (P6). T is the equivalent timeout of the SLOs less the p99, as timeouts that all move by the same time
// move theirs by it.
func (d demand) bound(batch int) profile.Seconds {
	return min(d.slo, d.timeout-profile.Seconds(float64(batch-1)/d.rate))
}

func demandOf(sorted []Application) demand {
	var e batching.Equivalent
	for _, a := range sorted {
		e.Add(batching.Class{Timeout: float64(a.SLO), Rate: a.Rate})
	}
	return demand{sorted[0].SLO, e.Rate(), profile.Seconds(e.Timeout())}
}

// choice is what provisioning found.
type choice struct {
	config    *Config // nil if nothing is fast enough
	instances int     // held
	latency   profile.Latency
	cost      Cost   // a second; infinite if nothing is fast enough (PA-46)
	sizes     []Size // of menus
}

func (c choice) feasible() bool { return c.config != nil }

// provisioner finds the cheapest way to serve a group: options as the papers reckon, menus as it is expected.
type provisioner interface {
	provision(demand) choice
}

// provision finds the cheapest configuration that keeps the deadlines, over all modes (PA-42).
func (o *options) provision(d demand) choice {
	best := choice{cost: Cost(math.Inf(1))}
	for b := range o.byBatch {
		x := o.within(b+1, d.bound(b+1))
		if x == nil {
			continue
		}
		if cost := x.cost * Cost(d.rate) / Cost(b+1); cost < best.cost {
			best = choice{config: x.config, latency: x.latency, cost: cost}
		}
	}
	return o.hold(d, best)
}

// within returns the cheapest that runs a batch within a bound; nil if nothing does.
func (o *options) within(batch int, bound profile.Seconds) *option {
	all := o.byBatch[batch-1]
	n := sort.Search(len(all), func(i int) bool { return all[i].latency.P99 > bound })
	if n == 0 {
		return nil
	}
	return &all[n-1]
}

// hold looks for held instances that are cheaper. There are as many as serve the rate.
func (o *options) hold(d demand, best choice) choice {
	for i := range o.held {
		x := &o.held[i]
		if x.cost >= best.cost {
			break
		}
		if x.reply > d.slo || x.each*Cost(d.rate) >= best.cost { // it costs no less with parts of instances
			continue
		}
		instances := math.Ceil(d.rate / x.serves)
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
		g.Timeouts = append(g.Timeouts, a.SLO-c.latency.P99)
	}
	return g
}
