// Package serving simulates the serving of inference requests on GPUs under several policies, and counts the deadlines that each policy misses and
// the resources that it uses.
//
// All policies get the same requests, profiles and hardware, and differ only in their rules. gshare's rules are those of its packages scaling,
// batching, packing, planning, and pipeline with residency and routing. Time is virtual. There are four simulations, the last of which has two
// variants:
//
//   - Whole GPUs that instances share. A batch takes its profiled time for its size and SMs, which change with what else runs on the
//     GPU. Instances take time to load. The charge is for the reserved SMs, or for the used ones if those are more.
//   - GPUs with MIG instances. A request passes through the stages of an instance; slices are exclusive, or functions share them in
//     turn and are loaded from host memory or storage. Under all policies, requests that cannot meet their deadline wait behind others
//     or are refused.
//   - Functions of a provider that are paid per call, grouped and sized by a plan. They are always loaded, and unlimited in number.
//     Execution times are random, with the profile's mean and p99.
//   - Functions as GPUFunctions of a cluster: either replicas with equal shares that scale according to spec.scaling, or replicas of class
//     swap, which take turns with the memory of a slice. test/cluster compares both with a cluster.
//
// The simulations omit the network, failures, and varying execution times on shares and slices, whose public profiles contain none.
package serving

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/planning"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// maxInstances is the maximum number of instances of a function. It is so high that only the GPUs limit the number.
const maxInstances = 1000

// drainTime is how long after the end of the trace requests may still be answered.
const drainTime = time.Minute

// Run simulates a policy and returns its result, which is the same for the same input. It returns a *share.FieldError for an invalid
// input.
func Run(ctx context.Context, in *Input, policy string) (Result, error) {
	if err := in.Validate(); err != nil {
		return Result{}, err
	}
	at := slices.IndexFunc(Policies(), func(p Policy) bool { return p.Name == policy })
	if at < 0 {
		return Result{}, fmt.Errorf("policy: %.64q is not known", policy)
	}
	c, r := &clock{}, newRecord(in)
	w, err := Policies()[at].make(in, c, r)
	if err != nil {
		return Result{}, err
	}
	if err := runEvents(ctx, in, c, w); err != nil {
		return Result{}, err
	}
	result := r.finish()
	w.finish(&priceList{in.Prices}, &result)
	return result, nil
}

// runEvents runs the arrivals, the scheduled events and the end of each second in the order of time, until drainTime after the trace.
func runEvents(ctx context.Context, in *Input, c *clock, w simulation) error {
	next, second := 0, time.Second
	end := in.Until + drainTime
	for {
		at, what := end, 0
		if t, ok := c.nextTime(); ok && t < at {
			at, what = t, 1
		}
		if second < at {
			at, what = second, 2
		}
		if next < len(in.Arrivals) && in.Arrivals[next].At < at {
			at, what = in.Arrivals[next].At, 3
		}
		switch what {
		case 0:
			c.now = end
			return nil
		case 1:
			c.runNext()
		case 2:
			c.now = second
			second += time.Second
			if err := cmp.Or(ctx.Err(), w.everySecond()); err != nil {
				return err
			}
		case 3:
			c.now = at
			w.arrive(int32(next))
			next++
		}
	}
}

// priceList computes the price of the GPU time and memory that a simulation used.
type priceList struct{ book planning.PriceList }

const nano = 1e-9

// price returns the price of GPU time and memory, in units of the currency.
func (p *priceList) price(gpuSeconds, gbSeconds float64) float64 {
	return nano * (float64(p.book.Slice)*gpuSeconds + float64(p.book.SliceMemory)*gbSeconds)
}

// simulation is the interface of the simulated systems, which serve requests under one policy.
type simulation interface {
	arrive(request int32)
	everySecond() error // called at the end of each second
	finish(prices *priceList, r *Result)
}

// Policy is a named set of rules by which a simulated system serves requests.
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
			onShares(sharePolicy{elastic: true, pool: retention, urgent: true}),
			onMIG(migPolicy{pipelines: true, refuses: true, consolidates: true, candidates: 4}),
			onPlan(cut, planWithinGPUTime))},
		{"eager", onShares(sharePolicy{scaling: scaling.Policy{Window: 10 * time.Second, Out: 1, In: 9}})},
		{"keepalive", onShares(sharePolicy{scaling: scaling.Policy{Window: time.Minute, Out: 1, In: 59}})},
		{"lazy", onShares(sharePolicy{elastic: true})},
		{"monolithic", onMIG(migPolicy{})},
		{"pipelined", onMIG(migPolicy{pipelines: true})},
		{"harmonybatch", onPlan(whole, planning.HarmonyBatch)},
		{"pamba", onPlan(cut, planning.Phases)},
		{"replicas", newReplicaSimulation},
		{"turns", newTurnSimulation},
	}
}

// constructor is a function that creates the simulation of a policy for an input.
type constructor func(in *Input, c *clock, r *record) (simulation, error)

// byHardware returns a constructor that simulates the first kind of hardware in the input: replicas on a cluster, if the functions have nothing else, whole
// GPUs, MIG instances, or functions billed per call.
func byHardware(shares, migs, calls constructor) constructor {
	return func(in *Input, c *clock, r *record) (simulation, error) {
		switch {
		case !slices.ContainsFunc(in.Functions, func(f Function) bool { return f.Replicas == nil || len(f.Points) > 0 }):
			return newReplicaSimulation(in, c, r)
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
