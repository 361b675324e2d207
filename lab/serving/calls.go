package serving

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/batching"
	"github.com/gshare-dev/gshare/serving/rules/planning"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// callSimulation simulates functions that a provider bills per call, grouped and sized by a plan for the mean request rates of the trace.
// Functions are always loaded, and their number is not limited.
type callSimulation struct {
	clock  *clock
	record *record
	prices planning.PriceList
	groups []*group // by function
	gpu    float64  // seconds of whole cards
	money  float64  // nano-units
}

// group is one group of applications of a plan that are served together, with its request queue.
type group struct {
	sim    *callSimulation
	plan   planning.Group
	model  *profile.Model
	queue  deadlineQueue
	random *rand.Rand
	wake   time.Duration
}

// planFunc is a function of package planning that computes a plan.
type planFunc func(planning.Input) (planning.Plan, error)

func newCallSimulation(in *Input, c *clock, r *record, modes []planning.Mode, plan planFunc) (*callSimulation, error) {
	w := &callSimulation{clock: c, record: r, prices: in.Prices, groups: make([]*group, len(in.Functions))}
	if len(in.Models) == 0 {
		return nil, share.Invalid("models", "the policy needs the latency models of functions paid by the call")
	}
	made, err := plan(in.planningInput(modes))
	if err != nil {
		return nil, err
	}
	if len(made.Infeasible) > 0 {
		return nil, made.Infeasible[0].Err()
	}
	index := map[string]int{}
	for i := range in.Functions {
		index[in.Functions[i].Name] = i
	}
	for n := range made.Groups {
		g, err := w.newGroup(in, made.Groups[n], uint64(n))
		if err != nil {
			return nil, profile.WithinField(fmt.Sprintf("groups[%d]", n), err)
		}
		for _, a := range g.plan.Applications {
			w.groups[index[a.Name]] = g
		}
	}
	return w, nil
}

// planningInput returns the input of the planner, with the mean rates of the trace. A function without requests is planned for one
// request in the whole run.
func (in *Input) planningInput(modes []planning.Mode) planning.Input {
	counts := make([]int, len(in.Functions))
	for _, a := range in.Arrivals {
		counts[a.Function]++
	}
	out := planning.Input{Models: in.Models, Prices: in.Prices, Platform: in.Platform, Modes: modes}
	for i := range in.Functions {
		f := &in.Functions[i]
		out.Applications = append(out.Applications, planning.Application{
			Name: f.Name, Model: f.Model, SLO: profile.Seconds(f.SLO.Seconds()), Rate: float64(max(counts[i], 1)) / in.Until.Seconds(),
		})
	}
	return out
}

func (w *callSimulation) newGroup(in *Input, p planning.Group, n uint64) (*group, error) {
	g := &group{sim: w, plan: p, random: rand.New(rand.NewPCG(in.Seed, 7000+n))}
	g.model = modelOf(in.Models, &p)
	p99 := seconds(p.P99)
	q, err := batching.New(batching.Config{
		MaxBatch: p.Config.Batch, Fill: true, Latency: func(int) time.Duration { return p99 },
	})
	g.queue = deadlineQueue{q}
	return g, err
}

func seconds(s profile.Seconds) time.Duration { return time.Duration(float64(s) * 1e9) }

// config returns the planned configuration that runs a batch of the given size.
func (g *group) config(batch int) *planning.Config {
	if len(g.plan.Sizes) > 0 {
		return &g.plan.Sizes[batch-1].Config
	}
	return &g.plan.Config
}

// latency returns the profiled latency of a batch of the given size.
func (g *group) latency(batch int) profile.Latency {
	c := g.config(batch)
	switch c.Mode {
	case planning.CPU:
		return g.model.CPU.Latency(batch, c.CPU)
	case planning.GPU:
		return g.model.GPU.Latency(batch, c.GPUGB)
	}
	return g.model.Partitioned.Latency(batch, c.Workers)
}

// executionTime draws the random duration of one execution: a constant plus an exponentially distributed time, such that mean and p99 are
// those of the profile.
func (g *group) executionTime(batch int) time.Duration {
	l := g.latency(batch)
	spread := l.Spread()
	return seconds(l.Mean - spread + spread*profile.Seconds(g.random.ExpFloat64()))
}

func (w *callSimulation) arrive(request int32) {
	g := w.groups[w.record.arrivals[request].Function]
	if !g.queue.add(request, w.record.deadline(request), w.clock.now, g.load()) {
		w.record.refuse(request)
		return
	}
	g.dispatch()
}

func (g *group) load() batching.Load {
	return batching.Load{Replicas: make([]batching.Replica, 1), Rate: g.plan.Rate()}
}

func (g *group) dispatch() {
	w := g.sim
	for {
		fire, refused, wake := g.queue.next(0, w.clock.now, g.load())
		for _, r := range refused {
			w.record.refuse(r)
		}
		if len(fire) == 0 {
			if wake > w.clock.now && (g.wake <= w.clock.now || wake < g.wake) {
				g.wake = wake
				w.clock.schedule(wake, g.dispatch)
			}
			return
		}
		g.run(fire)
	}
}

func (g *group) run(batch []int32) {
	w := g.sim
	takes := g.executionTime(len(batch))
	w.money += g.price(len(batch), takes)
	w.gpu += g.gpuFraction(len(batch)) * takes.Seconds()
	w.clock.after(takes, func() {
		for _, r := range batch {
			w.record.answer(r, w.clock.now)
		}
		g.dispatch()
	})
}

func (w *callSimulation) everySecond() error { return nil }

func (w *callSimulation) finish(_ *priceList, r *Result) {
	r.GPUSeconds, r.Cost = w.gpu, w.money*nano
}
