package serving

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// gpu is a whole GPU that instances share. A running batch has the SMs that its instance requests. SMs left over are divided
// equally among instances below their limit whenever a batch starts or ends; Dilu's tokens do that every 5 ms (DI-60 to
// DI-67).
type gpu struct {
	clock     *clock
	meter     *meter
	residents []*instance // that hold memory here
	running   []*instance
	since     time.Duration // of the grants
}

// meter holds the accumulated resource use of the GPUs.
type meter struct {
	until  time.Duration // nothing is counted afterwards
	gpu    float64       // seconds of whole GPUs
	memory float64       // GB-seconds
	used   float64       // seconds of whole GPUs during which SMs worked
}

// settle updates the meter to the current time. It charges the reserved SMs, or the used ones where those are more: a burst
// on idle SMs is free only as far as others have paid for them.
func (g *gpu) settle() {
	now := g.clock.now
	if from, to := min(g.since, g.meter.until), min(now, g.meter.until); to > from {
		var reserved, used share.PerMille
		var memory share.Bytes
		for _, i := range g.residents {
			reserved += i.request()
			memory += i.configuration.Share.Memory
		}
		for _, i := range g.running {
			used += i.sm
		}
		seconds := (to - from).Seconds()
		g.meter.gpu += seconds * float64(max(reserved, used)) / float64(share.Whole)
		g.meter.used += seconds * float64(used) / float64(share.Whole)
		g.meter.memory += seconds * float64(memory) / 1e9
	}
	for _, i := range g.running {
		i.done += float64(now-g.since) / float64(i.takes)
	}
	g.since = now
}

func (g *gpu) add(i *instance) {
	g.settle()
	g.residents = append(g.residents, i)
}

func (g *gpu) remove(i *instance) {
	g.settle()
	g.residents = slices.DeleteFunc(g.residents, func(o *instance) bool { return o == i })
}

// start runs a batch on an instance.
func (g *gpu) start(i *instance, batch []int32) {
	g.settle()
	i.batch, i.began, i.done, i.sm = batch, g.clock.now, 0, 0
	g.running = append(g.running, i)
	g.divide()
}

func (g *gpu) end(i *instance) []int32 {
	g.settle()
	g.running = slices.DeleteFunc(g.running, func(o *instance) bool { return o == i })
	batch := i.batch
	i.batch = nil
	g.divide()
	return batch
}

// divide divides the SMs among running batches and schedules their ends.
func (g *gpu) divide() {
	left, below := share.Whole, 0
	var grants, limits [64]share.PerMille
	for n, i := range g.running {
		grants[n] = i.request()
		limits[n] = max(grants[n], i.pool.surface.enough(len(i.batch), i.configuration.Share.SMLimit, i.target))
		left -= grants[n]
		if grants[n] < limits[n] {
			below++
		}
	}
	for left > 0 && below > 0 {
		part := max(left/share.PerMille(below), 1)
		below = 0
		for n := range g.running {
			more := min(part, left, limits[n]-grants[n])
			grants[n], left = grants[n]+more, left-more
			if grants[n] < limits[n] {
				below++
			}
		}
	}
	for n, i := range g.running {
		if grants[n] != i.sm {
			g.replan(i, grants[n])
		}
	}
}

// available returns the SMs, at most limit, that a batch of the instance could have now. Without an instance it returns
// limit.
func (i *instance) available(limit share.PerMille) share.PerMille {
	if i == nil {
		return limit
	}
	left := share.Whole
	for _, other := range i.gpu.running {
		left -= other.sm
	}
	return max(i.request(), min(left, i.configuration.Share.SMLimit))
}

func (g *gpu) replan(i *instance, sm share.PerMille) {
	i.sm = sm
	i.takes = i.pool.surface.at(len(i.batch), sm)
	i.planned++
	plan := i.planned
	g.clock.after(time.Duration((1-i.done)*float64(i.takes)), func() {
		if i.planned == plan && i.batch != nil {
			i.pool.ended(i)
		}
	})
}
