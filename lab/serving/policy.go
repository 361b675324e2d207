package serving

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/planning"
	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// world is functions and what serves them under one policy.
type world interface {
	arrive(request int32)
	second() error // is over
	finish(prices *priceList, r *Result)
}

// Policy is a way to serve requests.
type Policy struct {
	Name string
	make maker
}

// Policies returns gshare's rules, then those of the papers that it joins and of what they compare themselves with.
func Policies() []Policy {
	whole := []planning.Mode{planning.CPU, planning.GPU}
	cut := append(whole, planning.Partitioned)
	return []Policy{
		{"gshare", combined(
			onShares(sharePolicy{elastic: true, retains: true, urgent: true}),
			onMIG(migPolicy{pipelines: true, refuses: true, gathers: true, candidates: 4}),
			asPlanned(cut, sparing))},
		{"eager", onShares(sharePolicy{scaling: scaling.Policy{Window: 10 * time.Second, Out: 1, In: 9}})},
		{"keepalive", onShares(sharePolicy{scaling: scaling.Policy{Window: time.Minute, Out: 1, In: 59}})},
		{"lazy", onShares(sharePolicy{elastic: true})},
		{"monolithic", onMIG(migPolicy{})},
		{"pipelined", onMIG(migPolicy{pipelines: true})},
		{"harmonybatch", asPlanned(whole, planning.HarmonyBatch)},
		{"pamba", asPlanned(cut, planning.Phases)},
	}
}

// maker makes the world of a policy.
type maker func(in *Input, c *clock, r *record) (world, error)

// combined takes what the world offers: whole GPUs, else MIG instances, else functions paid by the call.
func combined(shares, migs, calls maker) maker {
	return func(in *Input, c *clock, r *record) (world, error) {
		switch {
		case in.GPUs > 0:
			return shares(in, c, r)
		case len(in.MIG.GPUs) > 0:
			return migs(in, c, r)
		}
		return calls(in, c, r)
	}
}

func onShares(p sharePolicy) maker {
	p.scaling.Max = maxInstances
	return func(in *Input, c *clock, r *record) (world, error) { return newShares(in, c, r, p) }
}

func onMIG(p migPolicy) maker {
	return func(in *Input, c *clock, r *record) (world, error) { return newMIGs(in, c, r, p) }
}

func asPlanned(modes []planning.Mode, plan planner) maker {
	return func(in *Input, c *clock, r *record) (world, error) { return newCalls(in, c, r, modes, plan) }
}
