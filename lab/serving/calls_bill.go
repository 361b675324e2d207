package serving

import (
	"math"
	"math/rand/v2"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/batching"
	"github.com/gshare-dev/gshare/vgpu/planning"
	"github.com/gshare-dev/gshare/vgpu/profile"
)

// sparing plans at the least bill with no more GPU time than the papers' plans: on a cluster with other users that is what
// is scarce. They plan for the p99, which one execution in a hundred exceeds; here it is as few as keep the plan no dearer
// than that of theirs which takes the least GPU time.
func sparing(in planning.Input) (plan planning.Plan, err error) {
	const exact = 1.01 // forecasts are to about 1 %
	paper, err := sparest(in)
	if err != nil {
		return plan, err
	}
	for _, late := range []float64{0.001, 0.002, 0.005, 0.01} {
		own := use{}
		if plan, own, err = spend(in, late, paper.cards); err != nil || own.bill <= exact*paper.bill && own.cards <= paper.cards {
			break
		}
	}
	return plan, err
}

// spend raises what GPU time is worth until the cheapest plan takes at most so many cards, or nothing saves any more.
func spend(in planning.Input, late, cards float64) (planning.Plan, use, error) {
	const doublings, steps = 16, 8
	plan, own, err := aimed(in, planning.Aim{Late: late})
	low, high := planning.Cost(0), planning.Cost(in.Prices.GPUMemory)
	for n := 0; n < doublings && own.cards > cards && err == nil; n++ {
		low, high = high, 2*high
		plan, own, err = aimed(in, planning.Aim{Late: late, CardSecond: high})
	}
	for n := 0; n < steps && low > 0 && err == nil; n++ {
		worth := (low + high) / 2
		if p, u, _ := aimed(in, planning.Aim{Late: late, CardSecond: worth}); u.cards <= cards {
			plan, own, high = p, u, worth
		} else {
			low = worth
		}
	}
	return plan, own, err
}

func aimed(in planning.Input, aim planning.Aim) (planning.Plan, use, error) {
	plan, err := planning.Expected(in, aim)
	return plan, forecast(&in, &plan), err
}

// use is what serving takes: nano-units, and whole cards, in the mean.
type use struct{ bill, cards float64 }

// sparest returns what the paper's plan takes that takes the least GPU time.
func sparest(in planning.Input) (use, error) {
	least := use{math.Inf(1), math.Inf(1)}
	for _, plan := range []planner{planning.Phases, planning.HarmonyBatch} {
		p, err := plan(in)
		if err != nil {
			return use{}, err
		}
		if u := forecast(&in, &p); u.cards < least.cards || u.cards == least.cards && u.bill < least.bill {
			least = u
		}
	}
	return least, nil
}

// forecast returns what a plan takes; nothing is enough if it leaves applications out.
func forecast(in *planning.Input, plan *planning.Plan) use {
	if len(plan.Infeasible) > 0 {
		return use{math.Inf(1), math.Inf(1)}
	}
	var sum use
	for i := range plan.Groups {
		g := &group{world: &calls{prices: in.Prices}, plan: plan.Groups[i], random: rand.New(rand.NewPCG(1, 1))}
		g.model = modelOf(in.Models, &g.plan)
		one := g.forecast()
		sum = use{sum.bill + one.bill, sum.cards + one.cards}
	}
	return sum
}

// forecast has batches as large as Poisson arrivals make them within the equivalent timeout.
func (g *group) forecast() use {
	var classes []batching.Class
	for i, a := range g.plan.Applications {
		classes = append(classes, batching.Class{Timeout: float64(g.plan.Timeouts[i]), Rate: a.Rate})
	}
	rate, served := g.plan.Rate(), 0.0
	var sum use
	for n, p := range batching.Sizes(rate*batching.EquivalentTimeout(classes), g.plan.Config.Batch) {
		sum.bill += p * g.bill(n)
		sum.cards += p * g.card(n) * float64(g.latency(n).Mean)
		served += p * float64(n)
	}
	return use{sum.bill / served * rate, sum.cards / served * rate}
}

// bill returns the mean of drawn executions.
func (g *group) bill(batch int) float64 {
	const draws = 1000
	sum := 0.0
	for range draws {
		sum += g.price(batch, g.takes(batch))
	}
	return sum / draws
}

func modelOf(models []profile.Model, g *planning.Group) *profile.Model {
	return &models[slices.IndexFunc(models, func(m profile.Model) bool { return m.Name == g.Applications[0].Model })]
}
