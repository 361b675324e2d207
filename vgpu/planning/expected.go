package planning

import (
	"math"

	"github.com/gshare-dev/gshare/vgpu/batching"
	"github.com/gshare-dev/gshare/vgpu/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Aim is what Expected plans for besides a small bill.
type Aim struct {
	CardSecond Cost    // what a second of a whole card is worth beyond its price
	Late       float64 // the part of executions that may take longer than planned for; 0.01 plans for the p99, as the papers do
}

// Expected plans at the least expected cost. Best reckons as the papers do: with full batches, and the bill of a mean
// execution. Here batches are as large as Poisson arrivals make them until the first request must start, each is run by what
// is cheapest for its size, and each execution is rounded up by itself; of partitioned ones, which are many calls, the mean. Groups
// have Sizes, and costs include Aim.CardSecond. Errors are *share.FieldError.
func Expected(in Input, aim Aim) (Plan, error) {
	if err := aim.validate(); err != nil {
		return Plan{}, err
	}
	in.aim = &aim
	return solve(in, in.Modes, byMenus)
}

func (a *Aim) validate() error {
	switch {
	case !(a.CardSecond >= 0 && a.CardSecond <= maxPrice): // NaN too
		return share.Invalid("cardSecond", "%v is outside 0 to %g", float64(a.CardSecond), float64(maxPrice))
	case !(a.Late >= 1e-9 && a.Late <= 0.5):
		return share.Invalid("late", "%v is outside 1e-09 to 0.5", a.Late)
	}
	return nil
}

func byMenus(o *options, sorted []Application) []Group { return cheapest(newMenus(o), sorted) }

// billed returns the time that an execution is expected to be billed for.
func (a *Aim) billed(q Milliseconds, l profile.Latency) profile.Seconds {
	if a == nil {
		return q.bill(l.Mean)
	}
	return q.expected(l)
}

// worth returns what an execution's part of a card is worth.
func (a *Aim) worth(l profile.Latency, gb, cardGB int) Cost {
	if a == nil {
		return 0
	}
	return a.CardSecond * Cost(l.Mean) * Cost(gb) / Cost(cardGB)
}

// shift moves the p99 of options to the quantile that is planned for.
func (a *Aim) shift(options []option) {
	for i := range options {
		if a != nil {
			options[i].latency.P99 = options[i].latency.Quantile(a.Late)
		}
	}
}

// Size is what runs a batch of one size, and what that is expected to cost.
type Size struct {
	Config Config `json:"config"`
	Cost   Cost   `json:"nano"`
}

// menu is the cheapest configuration of each batch size that is fast enough for a bound. It ends with the size that is the
// cheapest by the request: to wait for more would not pay.
type menu struct {
	bound profile.Seconds
	sizes []*option // by batch-1
}

// menus are those of all bounds that some configuration just keeps, and what is held.
type menus struct {
	all     []menu
	options *options
}

func newMenus(o *options) *menus {
	m := &menus{options: o}
	seen := map[profile.Seconds]bool{}
	for _, options := range o.byBatch {
		for i := range options {
			if bound := options[i].latency.P99; !seen[bound] {
				seen[bound] = true
				m.all = append(m.all, menu{bound, o.sizes(bound)})
			}
		}
	}
	return m
}

func (o *options) sizes(bound profile.Seconds) []*option {
	var sizes []*option
	least, most := Cost(math.Inf(1)), 0
	for n := range o.byBatch {
		x := o.within(n+1, bound)
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

// provision finds the menu with the least expected cost.
func (m *menus) provision(d demand) choice {
	best, of := choice{cost: Cost(math.Inf(1))}, -1
	for i := range m.all {
		x := &m.all[i]
		if len(x.sizes) == 0 || x.bound > d.slo {
			continue
		}
		if cost := x.expected(d); cost < best.cost {
			best.cost, of = cost, i
		}
	}
	if of >= 0 {
		best = m.all[of].choice(best.cost)
	}
	return m.options.hold(d, best)
}

// expected returns the cost a second, of batches that close after the equivalent timeout (P6) if they are not full before.
func (m *menu) expected(d demand) Cost {
	cost, size := 0.0, 0.0
	for n, p := range batching.Sizes(d.rate*float64(d.timeout-m.bound), len(m.sizes)) {
		cost, size = cost+p*float64(m.sizes[n-1].cost), size+p*float64(n)
	}
	return Cost(d.rate * cost / size)
}

func (m *menu) choice(cost Cost) choice {
	full := m.sizes[len(m.sizes)-1]
	c := choice{config: full.config, latency: profile.Latency{Mean: full.latency.Mean, P99: m.bound}, cost: cost}
	for _, x := range m.sizes {
		c.sizes = append(c.sizes, Size{*x.config, x.cost})
	}
	return c
}
