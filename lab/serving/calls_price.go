package serving

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/planning"
)

// price returns the price of one batch in nano-units (PA-21): its resources for the billed time, and the call. Partitioned
// executions cost what the plan predicts.
func (g *group) price(batch int, takes time.Duration) float64 {
	c, book := g.config(batch), &g.world.prices
	var quantum planning.Milliseconds
	rate := float64(book.VCPU)*float64(c.CPU)/1000 + float64(book.Memory)*float64(c.Memory)/(1<<30)
	switch c.Mode {
	case planning.CPU:
		quantum = book.Quantum.CPU
	case planning.GPU:
		quantum = book.Quantum.GPU
		rate += float64(book.GPUMemory) * float64(c.GPUGB)
	default:
		return g.planned(batch)
	}
	billed := takes
	if unit := time.Duration(quantum) * time.Millisecond; unit > 0 {
		billed = (takes + unit - 1) / unit * unit
	}
	return float64(book.Call) + rate*billed.Seconds()
}

// planned returns the cost of a batch that the plan predicts: for that size if the plan has Sizes, else for a full batch.
func (g *group) planned(batch int) float64 {
	if len(g.plan.Sizes) > 0 {
		return float64(g.plan.Sizes[batch-1].Cost)
	}
	return float64(g.plan.Cost) * float64(g.plan.Config.Batch) / g.plan.Rate()
}

// card returns the fraction of a GPU that a batch of the given size uses.
func (g *group) card(batch int) float64 {
	if c := g.config(batch); c.Mode == planning.GPU {
		return float64(c.GPUGB) / float64(g.model.GPU.CardGB)
	}
	return 0
}
