package serving

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/planning"
	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// simulation is a simulated system that serves requests under one policy.
type simulation interface {
	arrive(request int32)
	everySecond() error // is over
	finish(prices *priceList, r *Result)
}

// Policy is a named way to serve requests.
type Policy struct {
	Name string
	make constructor
}

// Policies returns gshare's policy first, then those of the papers that it builds on and their baselines.
func Policies() []Policy {
	whole := []planning.Mode{planning.CPU, planning.GPU}
	cut := append(whole, planning.Partitioned)
	return []Policy{
		{"gshare", byHardware(
			onShares(sharePolicy{elastic: true, retains: true, urgent: true}),
			onMIG(migPolicy{pipelines: true, refuses: true, consolidates: true, candidates: 4}),
			onPlan(cut, planWithinGPUTime))},
		{"eager", onShares(sharePolicy{scaling: scaling.Policy{Window: 10 * time.Second, Out: 1, In: 9}})},
		{"keepalive", onShares(sharePolicy{scaling: scaling.Policy{Window: time.Minute, Out: 1, In: 59}})},
		{"lazy", onShares(sharePolicy{elastic: true})},
		{"monolithic", onMIG(migPolicy{})},
		{"pipelined", onMIG(migPolicy{pipelines: true})},
		{"harmonybatch", onPlan(whole, planning.HarmonyBatch)},
		{"pamba", onPlan(cut, planning.Phases)},
	}
}

// constructor is a function that returns the simulated system of a policy for an input.
type constructor func(in *Input, c *clock, r *record) (simulation, error)

// byHardware returns a constructor that simulates the first kind of hardware in the input: whole GPUs, MIG instances, or functions billed
// per call.
func byHardware(shares, migs, calls constructor) constructor {
	return func(in *Input, c *clock, r *record) (simulation, error) {
		switch {
		case in.GPUs > 0:
			return shares(in, c, r)
		case len(in.MIG.GPUs) > 0:
			return migs(in, c, r)
		}
		return calls(in, c, r)
	}
}

func onShares(p sharePolicy) constructor {
	p.scaling.Max = maxInstances
	return func(in *Input, c *clock, r *record) (simulation, error) { return newShareSimulation(in, c, r, p) }
}

func onMIG(p migPolicy) constructor {
	return func(in *Input, c *clock, r *record) (simulation, error) { return newMIGSimulation(in, c, r, p) }
}

func onPlan(modes []planning.Mode, plan planFunc) constructor {
	return func(in *Input, c *clock, r *record) (simulation, error) {
		return newCallSimulation(in, c, r, modes, plan)
	}
}
