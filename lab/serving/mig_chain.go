package serving

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/lab/serving/residency"
	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// migInstance is a running instance whose stages have slices of their own. A request enters once the slowest stage has finished the
// previous one, and leaves when all stages and transfers are done.
type migInstance struct {
	id          int
	function    *migFunction
	assignment  pipeline.Assignment
	work        []stageWork
	ready       bool
	leaving     bool
	free        time.Duration // when the next request may enter
	outstanding int
	since       time.Duration
	lastUsed    time.Duration
	use         residency.Meter
	replaces    *migInstance // instance that retires when this one is ready
}

// stageWork is the interval in which one slice works on a request, relative to the time at which the request enters the pipeline.
type stageWork struct {
	slice string
	from  time.Duration
	takes time.Duration
}

func (a *migFunction) start(on pipeline.Assignment, load time.Duration) *migInstance {
	w := a.sim
	w.ids++
	c := &migInstance{id: w.ids, function: a, assignment: on, work: stageSchedule(a.function.Graph, on)}
	for _, stage := range on.Slices {
		for _, s := range stage {
			w.free = slices.DeleteFunc(w.free, func(o pipeline.Slice) bool { return o.ID == s.ID })
		}
	}
	a.instances = append(a.instances, c)
	w.clock.after(load, c.serve)
	return c
}

func (c *migInstance) serve() {
	now := c.function.sim.clock.now
	c.ready, c.since, c.lastUsed = true, now, now
	if c.replaces != nil {
		c.replaces.retire()
		c.replaces = nil
	}
	c.function.dispatch()
}

// stageSchedule returns the interval in which each slice of a pipeline works on a request, with the transfers in between. The time of a
// node that only some requests run is weighted with its probability, as in the computation of the bottleneck.
func stageSchedule(f *pipeline.Function, on pipeline.Assignment) []stageWork {
	var work []stageWork
	at := time.Duration(0)
	for s, stage := range on.Partition.Stages {
		longest := time.Duration(0)
		for p, part := range stage {
			on := on.Slices[s][p]
			takes := time.Duration(0)
			for _, n := range part {
				chance := f.Nodes[n].Chance
				if chance == 0 {
					chance = share.Whole
				}
				takes += f.Nodes[n].Times[on.Kind.Name] * time.Duration(chance) / time.Duration(share.Whole)
			}
			work = append(work, stageWork{on.ID, at, takes})
			longest = max(longest, takes)
		}
		at += longest + f.Transfer
	}
	return work
}

// idleGPUPenalty returns a latency to add, in routing, to that of an instance on an idle GPU, so that the instance is chosen last.
// It returns 0 unless the policy saves GPU time and slices are not scarce.
func (c *migInstance) idleGPUPenalty() time.Duration {
	w := c.function.sim
	if !w.policy.consolidates || w.scarce {
		return 0
	}
	for _, x := range c.work {
		if w.gpus[x.slice].slots == 0 {
			return c.function.function.SLO
		}
	}
	return 0
}

func (c *migInstance) take(request int32) {
	w := c.function.sim
	now := w.clock.now
	enters := max(now, c.free)
	c.free = enters + c.assignment.Bottleneck
	c.outstanding++
	c.use.Add(enters, c.free)
	for _, x := range c.work {
		w.countWork(x.slice, enters+x.from, x.takes)
	}
	w.clock.schedule(enters+c.assignment.Latency, func() {
		w.record.answer(request, w.clock.now)
		w.record.split(request, w.clock.now, 0, c.assignment.Transfers, c.assignment.Latency-c.assignment.Transfers)
		c.outstanding--
		c.lastUsed = w.clock.now
		if c.leaving && c.outstanding == 0 {
			c.gone()
		}
		c.function.dispatch()
	})
}

// retire stops new requests to an instance and removes it when its outstanding requests are done.
func (c *migInstance) retire() {
	if c.leaving {
		return
	}
	c.leaving = true
	if c.outstanding == 0 {
		c.gone()
	}
}

func (c *migInstance) gone() {
	a, w := c.function, c.function.sim
	for _, stage := range c.assignment.Slices {
		w.free = append(w.free, stage...)
	}
	a.instances = slices.DeleteFunc(a.instances, func(o *migInstance) bool { return o == c })
	if len(a.instances) == 0 && a.whole && w.node != nil {
		w.node.AddDemoted(w.clock.now, a.function.Name)
		a.sharing = true
	}
}

// countWork records an interval in which a slice works, for the working time of the slice and of its GPU.
func (w *migSimulation) countWork(slice string, from, takes time.Duration) {
	w.use.work(slice, from, takes)
	g := w.gpus[slice]
	w.clock.schedule(from, g.begin)
	w.clock.schedule(from+takes, g.end)
}

// gpuActivity measures the time during which at least one slice of a GPU works.
type gpuActivity struct {
	clock *clock
	until time.Duration
	slots int // number of slices at work
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
