package simulate

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/pflag"

	"github.com/gshare-dev/gshare/cmd/gshare-lab/internal/report"
	"github.com/gshare-dev/gshare/cmd/internal/chart"
	"github.com/gshare-dev/gshare/lab/bound"
	"github.com/gshare-dev/gshare/lab/cluster"
)

// boundSimulation holds the flags of gshare-lab simulate bound, which computes how much of a cluster's GPUs any policy could allocate.
type boundSimulation struct {
	clusterSimulation
	self  *simulation
	tries int
	known map[solvedKey]solved
}

// solvedKey identifies a solved problem.
type solvedKey struct {
	seed uint64
	load float64
}

// solved is a problem and its solution, which are kept because several values of --policy need them.
type solved struct {
	problem  *bound.Problem
	solution bound.Solution
}

// The values of --policy that are no policies of a scheduler but limits and packings.
const (
	clairvoyant = "clairvoyant"
	accepting   = "accepting"
	packed      = "packed"
	accepted    = "accepted"
)

const boundLong = `Compute how much of a cluster's GPUs any policy could allocate to the pods that arrive in simulate cluster with the same flags and seeds:

  clairvoyant  upper limit for a policy that knows all pods beforehand and may refuse any pod
  accepting    upper limit for a policy that knows all pods too, but refuses a pod only if no node has room for it
  packed       a packing of a selection of the pods. A policy could reach as much, so clairvoyant is not far too high.
  accepted     what a policy allocates that knows all pods beforehand and has packed them, but refuses a pod only if no node has room for
               it. accepting is no lower.
  others       what the policy allocates

The limits are linear programs over node types and pod requests. The printed values are proven by prices, in integers.

Figures of each run:
  allocation_percent  GPUs in use, in percent, when --load times the GPUs of the cluster have been requested
  idle_...            policies: percentage of GPUs that are idle, by the reason why no refused pod can have them: what is left of devices is
                      too small (fragment), no refused pod accepts the model, or the node has too little CPU or memory for all that do`

func simulateBound() *simulation {
	b := &boundSimulation{known: map[solvedKey]solved{}}
	b.self = &simulation{
		name: "bound", short: "Compute upper limits of what any policy can allocate of a cluster", long: boundLong,
		example:  "  gshare-lab simulate bound --load 1 --policy all",
		policies: append([]string{clairvoyant, accepting, packed, accepted}, cluster.Policies()...), variants: cluster.Tries(),
		flags: b.flags, prepare: b.prepare, run: b.run, chart: b.chart,
	}
	return b.self
}

func (b *boundSimulation) flags(f *pflag.FlagSet) {
	b.clusterSimulation.flags(f)
	f.IntVar(&b.tries, "tries", 50_000, "number of attempts to improve a few nodes for packed, and half as many for accepted")
}

func (b *boundSimulation) prepare() error {
	if b.tries < 0 {
		return fmt.Errorf("--tries: must not be negative, got %d", b.tries)
	}
	return b.clusterSimulation.prepare()
}

func (b *boundSimulation) run(ctx context.Context, policy string, seed uint64) ([]report.Figure, error) {
	switch policy {
	case clairvoyant, accepting, packed, accepted:
		return b.limit(ctx, policy, seed)
	}
	s, err := b.simulation(policy, seed)
	if err != nil {
		return nil, err
	}
	result, err := s.Run(ctx)
	if err != nil {
		return nil, err
	}
	b.storeCurve(policy, result.Curve)
	return []report.Figure{
		{Name: "allocation_percent", Value: result.AllocatedEnd, Digits: 2},
		{Name: "idle_fragment", Value: result.Idle.Fragment, Digits: 2},
		{Name: "idle_model", Value: result.Idle.Model, Digits: 2},
		{Name: "idle_cpu", Value: result.Idle.CPU, Digits: 2},
		{Name: "idle_memory", Value: result.Idle.Memory, Digits: 2},
		{Name: "idle_unwanted", Value: result.Idle.Unwanted, Digits: 2},
	}, nil
}

// limit returns the figure of a limit or a packing. In the first run with a chart, it also stores the figure at several loads as a line of the
// chart.
func (b *boundSimulation) limit(ctx context.Context, policy string, seed uint64) ([]report.Figure, error) {
	if known := slices.ContainsFunc(b.curves, func(l chart.Line) bool { return l.Name == policy }); b.self.plot != "" && !known {
		line := chart.Line{Name: policy}
		for load := 0.8; load < b.load+0.05; load += 0.1 {
			percent, err := b.percent(ctx, policy, seed, load)
			if err != nil {
				return nil, err
			}
			line.Points = append(line.Points, chart.Point{X: 100 * load, Y: percent})
		}
		b.curves = append(b.curves, line)
	}
	percent, err := b.percent(ctx, policy, seed, b.load)
	return []report.Figure{{Name: "allocation_percent", Value: percent, Digits: 2}}, err
}

func (b *boundSimulation) percent(ctx context.Context, policy string, seed uint64, load float64) (float64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s, err := b.solve(seed, load)
	if err != nil {
		return 0, err
	}
	milli := s.solution.Milli
	switch policy {
	case accepting:
		milli = min(milli, s.problem.AcceptingLimit())
	case packed:
		milli = s.solution.Pack(b.tries)
	case accepted:
		milli = s.problem.PackAccepting(b.tries / 2)
	}
	return s.problem.Percent(milli), nil
}

func (b *boundSimulation) solve(seed uint64, load float64) (solved, error) {
	key := solvedKey{seed, load}
	if s, ok := b.known[key]; ok {
		return s, nil
	}
	pods, err := cluster.Arrivals(cluster.Config{Nodes: b.nodes, Pods: b.pods, Policy: "gshare", Order: b.order, Load: load, Seed: seed})
	if err != nil {
		return solved{}, err
	}
	problem := bound.NewProblem(b.nodes, pods)
	b.known[key] = solved{problem: problem, solution: problem.Solve()}
	return b.known[key], nil
}
