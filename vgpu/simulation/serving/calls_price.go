package serving

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/planning"
)

// price is what a call costs in nano-units (PA-21): what it has of the platform for the billed time, and the call. Partitioned
// ones cost what the plan reckons with for a full batch.
func (g *group) price(takes time.Duration) float64 {
	c, book := &g.plan.Config, &g.world.prices
	var quantum planning.Milliseconds
	rate := float64(book.VCPU)*float64(c.CPU)/1000 + float64(book.Memory)*float64(c.Memory)/(1<<30)
	switch c.Mode {
	case planning.CPU:
		quantum = book.Quantum.CPU
	case planning.GPU:
		quantum = book.Quantum.GPU
		rate += float64(book.GPUMemory) * float64(c.GPUGB)
	default:
		return float64(g.plan.Cost) * float64(c.Batch) / g.plan.Rate()
	}
	billed := takes
	if unit := time.Duration(quantum) * time.Millisecond; unit > 0 {
		billed = (takes + unit - 1) / unit * unit
	}
	return float64(book.Call) + rate*billed.Seconds()
}
