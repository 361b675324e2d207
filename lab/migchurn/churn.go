// Package migchurn simulates requests for MIG instances that arrive at many GPUs and end, and measures what fraction of them a
// placement policy accepts. No policy moves or ends a running instance.
package migchurn

import (
	"container/heap"
	"errors"
	"math/rand/v2"

	"github.com/gshare-dev/gshare/vgpu/mig"
)

// Load describes the requests for MIG instances. They arrive as a Poisson process. An accepted request runs for an exponential time with
// mean 1, whatever its size; a refused one is dropped.
type Load struct {
	Model    *mig.Model
	GPUs     int
	Mix      Mix
	Offered  float64 // compute slices that would be in use if all requests were accepted, relative to those that exist
	Requests int     // number of requests; the first quarter fills the GPUs and is not counted
	Seed     uint64
}

// Policy returns the index of the GPU and the instance to create for a requested profile, or ok = false if none fits. The instance may be
// larger than the request. A policy must not change the layouts.
type Policy func(gpus []mig.Layout, p *mig.Profile) (gpu int, made mig.Instance, ok bool)

// Result is the outcome of one run.
type Result struct {
	Requests, Accepted int
	OfferedSlices      int     // compute slices of all requests
	AcceptedSlices     int     // compute slices of the accepted requests
	MeanBusy           float64 // mean compute slices of running requests, relative to those that exist
}

// AcceptedPercent returns the compute slices of the accepted requests as a percentage of those of all requests.
func (r Result) AcceptedPercent() float64 {
	return 100 * float64(r.AcceptedSlices) / float64(r.OfferedSlices)
}

// Check returns an error if a field of the load is out of range. The error begins with gpus, load, requests or mix.
func (l Load) Check() error {
	switch {
	case l.GPUs < 1:
		return errors.New("gpus: there are no GPUs")
	case !(l.Offered > 0) || l.Offered > 1000:
		return errors.New("load: is not positive, or beyond 1000")
	case l.Requests < 4:
		return errors.New("requests: there are fewer than 4")
	case len(l.Mix.demandsOn(l.Model)) == 0:
		return errors.New("mix: it asks for no profile of the GPU")
	}
	return nil
}

// Run simulates the load under a policy. The requests depend only on the seed, so that all policies see the same ones.
func Run(l Load, choose Policy) (Result, error) {
	if err := l.Check(); err != nil {
		return Result{}, err
	}
	demands := l.Mix.demandsOn(l.Model)
	c := churn{
		load: l, choose: choose, demands: demands, gpus: make([]mig.Layout, l.GPUs), random: rand.New(rand.NewPCG(l.Seed, 1)),
		rate: l.Offered * float64(l.GPUs*l.Model.Compute) / meanCompute(demands),
	}
	for i := range l.Requests {
		c.counted = i >= l.Requests/4
		c.arrive()
	}
	c.result.MeanBusy = c.busyTime / c.time / float64(l.GPUs*l.Model.Compute)
	return c.result, nil
}

// churn is the state of a run.
type churn struct {
	load    Load
	choose  Policy
	demands []demand
	random  *rand.Rand
	rate    float64 // requests per mean lifetime

	gpus    []mig.Layout
	running departures
	now     float64
	busy    int // compute slices of the running requests

	counted        bool
	time, busyTime float64 // counted time, and the integral of busy over it
	result         Result
}

func (c *churn) arrive() {
	at := c.now + c.random.ExpFloat64()/c.rate
	profile := pick(c.demands, c.random.Float64())
	lifetime := c.random.ExpFloat64()
	for len(c.running) > 0 && c.running[0].at <= at {
		c.depart()
	}
	c.advance(at)
	gpu, made, ok := c.choose(c.gpus, profile)
	c.record(profile, ok)
	if !ok {
		return
	}
	c.gpus[gpu] = c.gpus[gpu].With(made)
	c.busy += profile.Compute
	heap.Push(&c.running, departure{at: at + lifetime, gpu: gpu, made: made, compute: profile.Compute})
}

func (c *churn) depart() {
	d := heap.Pop(&c.running).(departure)
	c.advance(d.at)
	c.gpus[d.gpu] = c.gpus[d.gpu].Without(d.made)
	c.busy -= d.compute
}

func (c *churn) advance(at float64) {
	if c.counted {
		c.time += at - c.now
		c.busyTime += (at - c.now) * float64(c.busy)
	}
	c.now = at
}

func (c *churn) record(p *mig.Profile, accepted bool) {
	if !c.counted {
		return
	}
	c.result.Requests++
	c.result.OfferedSlices += p.Compute
	if accepted {
		c.result.Accepted++
		c.result.AcceptedSlices += p.Compute
	}
}

// departure is the end of a running instance.
type departure struct {
	at      float64
	gpu     int
	made    mig.Instance
	compute int // compute slices of its request
}

// departures is a heap of departures (container/heap), the earliest first.
type departures []departure

func (d departures) Len() int           { return len(d) }
func (d departures) Less(i, j int) bool { return d[i].at < d[j].at }
func (d departures) Swap(i, j int)      { d[i], d[j] = d[j], d[i] }
func (d *departures) Push(x any)        { *d = append(*d, x.(departure)) }
func (d *departures) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	*d = (*d)[:last]
	return x
}
