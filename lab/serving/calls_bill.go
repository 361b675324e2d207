package serving

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/batching"
	"github.com/gshare-dev/gshare/serving/rules/planning"
	"github.com/gshare-dev/gshare/serving/rules/profile"
)

// planWithinGPUTime returns the cheapest plan that takes no more GPU time than the plans of HarmonyBatch and PAMBA, because GPU time is
// scarce on a shared cluster. The papers plan for the p99 latency, which one execution in a hundred exceeds. This function plans for the
// smallest fraction of late executions with which its plan costs no more than the paper's plan with the least GPU time.
func planWithinGPUTime(in planning.Input) (plan planning.Plan, err error) {
	const exact = 1.01 // forecasts are accurate to about 1 %
	paper, err := leastGPUUsage(in)
	if err != nil {
		return plan, err
	}
	for _, late := range []float64{0.001, 0.002, 0.005, 0.01} {
		own := resourceUsage{}
		if plan, own, err = planWithin(in, late, paper.cards); err != nil || own.bill <= exact*paper.bill && own.cards <= paper.cards {
			break
		}
	}
	return plan, err
}

// planWithin raises the value of GPU time until the cheapest plan takes at most the given mean number of GPUs, or gives up after a fixed
// number of steps.
func planWithin(in planning.Input, late, cards float64) (planning.Plan, resourceUsage, error) {
	const doublings, steps = 16, 8
	plan, own, err := planFor(in, planning.Objective{Late: late})
	low, high := planning.Cost(0), planning.Cost(in.Prices.GPUMemory)
	for n := 0; n < doublings && own.cards > cards && err == nil; n++ {
		low, high = high, 2*high
		plan, own, err = planFor(in, planning.Objective{Late: late, CardSecond: high})
	}
	for n := 0; n < steps && low > 0 && err == nil; n++ {
		worth := (low + high) / 2
		if p, u, _ := planFor(in, planning.Objective{Late: late, CardSecond: worth}); u.cards <= cards {
			plan, own, high = p, u, worth
		} else {
			low = worth
		}
	}
	return plan, own, err
}

func planFor(in planning.Input, aim planning.Objective) (planning.Plan, resourceUsage, error) {
	plan, err := planning.Expected(in, aim)
	return plan, planUsage(&in, &plan), err
}

// resourceUsage is the mean bill in nano-units per second and the mean number of whole GPUs in use.
type resourceUsage struct{ bill, cards float64 }

// leastGPUUsage returns the resource usage of whichever of HarmonyBatch's and PAMBA's plans takes the least GPU time.
func leastGPUUsage(in planning.Input) (resourceUsage, error) {
	least := resourceUsage{math.Inf(1), math.Inf(1)}
	for _, plan := range []planFunc{planning.Phases, planning.HarmonyBatch} {
		p, err := plan(in)
		if err != nil {
			return resourceUsage{}, err
		}
		if u := planUsage(&in, &p); u.cards < least.cards || u.cards == least.cards && u.bill < least.bill {
			least = u
		}
	}
	return least, nil
}

// planUsage returns the expected resource usage of a plan. It is infinite if the plan leaves applications out.
func planUsage(in *planning.Input, plan *planning.Plan) resourceUsage {
	if len(plan.Infeasible) > 0 {
		return resourceUsage{math.Inf(1), math.Inf(1)}
	}
	var sum resourceUsage
	for i := range plan.Groups {
		g := &group{sim: &callSimulation{prices: in.Prices}, plan: plan.Groups[i], random: rand.New(rand.NewPCG(1, 1))}
		g.model = modelOf(in.Models, &g.plan)
		one := g.expectedUsage()
		sum = resourceUsage{sum.bill + one.bill, sum.cards + one.cards}
	}
	return sum
}

// expectedUsage returns the expected resource usage of a group, whose batch sizes follow Poisson arrivals within the equivalent timeout.
func (g *group) expectedUsage() resourceUsage {
	var classes []batching.Class
	for i, a := range g.plan.Applications {
		classes = append(classes, batching.Class{Timeout: float64(g.plan.Timeouts[i]), Rate: a.Rate})
	}
	rate, served := g.plan.Rate(), 0.0
	var sum resourceUsage
	for n, p := range batching.BatchSizes(rate*batching.EquivalentTimeout(classes), g.plan.Config.Batch) {
		sum.bill += p * g.bill(n)
		sum.cards += p * g.gpuFraction(n) * float64(g.latency(n).Mean)
		served += p * float64(n)
	}
	return resourceUsage{sum.bill / served * rate, sum.cards / served * rate}
}

// bill returns the mean price in nano-units of a batch of the given size, over 1000 randomly drawn executions.
func (g *group) bill(batch int) float64 {
	const draws = 1000
	sum := 0.0
	for range draws {
		sum += g.price(batch, g.executionTime(batch))
	}
	return sum / draws
}

func modelOf(models []profile.Model, g *planning.Group) *profile.Model {
	return &models[slices.IndexFunc(models, func(m profile.Model) bool { return m.Name == g.Applications[0].Model })]
}

// price returns the price of one batch in nano-units: that of its resources for the billed time, plus that of the call.
// Executions of a partitioned model cost what the plan predicts.
func (g *group) price(batch int, takes time.Duration) float64 {
	c, book := g.config(batch), &g.sim.prices
	var quantum planning.Milliseconds
	rate := float64(book.VCPU)*float64(c.CPU)/1000 + float64(book.Memory)*float64(c.Memory)/(1<<30)
	switch c.Mode {
	case planning.CPU:
		quantum = book.Quantum.CPU
	case planning.GPU:
		quantum = book.Quantum.GPU
		rate += float64(book.GPUMemory) * float64(c.GPUGB)
	default:
		return g.plannedCost(batch)
	}
	billed := takes
	if unit := time.Duration(quantum) * time.Millisecond; unit > 0 {
		billed = (takes + unit - 1) / unit * unit
	}
	return float64(book.Call) + rate*billed.Seconds()
}

// plannedCost returns the cost of a batch that the plan predicts: for its size if the plan has Sizes, otherwise for a full batch.
func (g *group) plannedCost(batch int) float64 {
	if len(g.plan.Sizes) > 0 {
		return float64(g.plan.Sizes[batch-1].Cost)
	}
	return float64(g.plan.Cost) * float64(g.plan.Config.Batch) / g.plan.Rate()
}

// gpuFraction returns the fraction of a GPU that a batch of the given size uses.
func (g *group) gpuFraction(batch int) float64 {
	if c := g.config(batch); c.Mode == planning.GPU {
		return float64(c.GPUGB) / float64(g.model.GPU.CardGB)
	}
	return 0
}
