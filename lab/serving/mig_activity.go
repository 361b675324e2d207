package serving

import (
	"time"
)

// countWork records an interval in which a slice works, for the working time of the slice and of its GPU.
func (w *migSimulation) countWork(slice string, from, takes time.Duration) {
	w.mig += max(0, min(from+takes, w.until)-min(from, w.until)).Seconds()
	g := w.gpus[slice]
	w.clock.schedule(from, g.begin)
	w.clock.schedule(from+takes, g.end)
}

// gpuActivity measures the time during which at least one slice of a GPU works.
type gpuActivity struct {
	clock *clock
	until time.Duration
	slots int // slices at work
	since time.Duration
	sum   time.Duration
}

func (g *gpuActivity) begin() {
	if g.slots == 0 {
		g.since = g.clock.now
	}
	g.slots++
}

func (g *gpuActivity) end() {
	if g.slots--; g.slots == 0 {
		g.sum += max(0, min(g.clock.now, g.until)-g.since)
	}
}

func (g *gpuActivity) total() float64 {
	if g.slots > 0 {
		return (g.sum + max(0, g.until-g.since)).Seconds()
	}
	return g.sum.Seconds()
}
