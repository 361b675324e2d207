package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/gshare-dev/gshare/cmd/gshare-lab/internal/report"
	"github.com/gshare-dev/gshare/cmd/internal/chart"
	"github.com/gshare-dev/gshare/lab/dataset"
	"github.com/gshare-dev/gshare/lab/events"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// eventsSimulation holds the flags and results of gshare-lab simulate events, which places the instances of Dilu's event lists.
type eventsSimulation struct {
	file                string
	nodes, gpus, memory int
	gamma               int64
	cut                 bool

	list   []events.Event
	curves []chart.Line // one for each policy
}

const eventsLong = `Replay a list of instances that start and stop on a cluster of equal GPUs, and count the GPUs in use. The list has the format of
Dilu's simulator (ASPLOS'25, 5.5): one Python dict per line. Nothing is random; runs only differ in speed.

  exclusive      whole GPUs
  limit          INFless-l: packs by the limits of SMs, best fit
  request        INFless-r: packs by the requests, best fit; limits are ignored
  firstfit       requests and limits within Dilu's bounds, on the first GPU that fits
  complementary  Dilu's Algorithm 1 as gshare corrects it; the workers of an instance stay on one node
  gshare         the choice of the profile gshare, with the workers of an instance as pods of their own

The last two divide an LLM between active GPUs of one node, if these have the memory, rather than start a GPU. --cut=false disables this.
In Kubernetes, the author of a pod decides this (gshare/vgpu).

Figures of each run:
  peak_gpus             maximum of active GPUs
  mean_gpus             over time, from the first event to the last
  sm_fragmentation      SMs of active GPUs that instances do not request, over time, in percent; SMs that a policy allocates
                        above the request count as fragmentation
  memory_fragmentation  free memory of active GPUs, over time, in percent
  refused               instances that did not fit
  decisions_per_second  starts per second of the replay, on one thread`

func simulateEvents() *simulation {
	e := &eventsSimulation{}
	var policies []string
	for _, p := range events.Policies() {
		policies = append(policies, p.Name)
	}
	slices.Reverse(policies) // gshare is the default
	return &simulation{
		name: "events", short: "Replay instances that start and stop, and count the GPUs in use", long: eventsLong,
		example:  "  gshare-lab simulate events --file instances-400.txt --policy all --plot gpus.svg",
		policies: policies, flags: e.flags, prepare: e.prepare, run: e.run, chart: e.chart,
	}
}

func (e *eventsSimulation) flags(f *pflag.FlagSet) {
	f.StringVar(&e.file, "file", "", "list of events (required)")
	f.IntVar(&e.nodes, "nodes", 1000, "number of nodes")
	f.IntVar(&e.gpus, "gpus-per-node", 4, "number of GPUs per node")
	f.IntVar(&e.memory, "memory", 40, "memory of each GPU, in GiB")
	f.Int64Var(&e.gamma, "gamma", 150, "maximum sum of limits on a GPU, in percent")
	f.BoolVar(&e.cut, "cut", true, "let complementary and gshare divide LLMs between GPUs")
}

func (e *eventsSimulation) prepare() error {
	switch {
	case e.file == "":
		return errors.New("--file is required")
	case e.nodes < 1 || e.nodes > 100_000:
		return fmt.Errorf("--nodes: %d is not between 1 and 100000", e.nodes)
	case e.gpus < 1 || e.gpus > share.MaxVGPUs:
		return fmt.Errorf("--gpus-per-node: %d is not between 1 and %d", e.gpus, share.MaxVGPUs)
	case e.memory < 1 || e.memory > 1024:
		return fmt.Errorf("--memory: %d is not between 1 and 1024", e.memory)
	case e.gamma < 100 || e.gamma > 1000:
		return fmt.Errorf("--gamma: %d is not between 100 and 1000", e.gamma)
	}
	text, err := dataset.ReadFile(e.file)
	if err != nil {
		return err
	}
	if e.list, err = events.Parse(string(text)); err != nil {
		return fmt.Errorf("%s: %w", e.file, err)
	}
	return nil
}

func (e *eventsSimulation) run(_ context.Context, name string, _ uint64) ([]report.Figure, error) {
	policies := events.Policies()
	policy := policies[slices.IndexFunc(policies, func(p events.Policy) bool { return p.Name == name })]
	cluster := events.Config{
		Nodes: e.nodes, GPUsPerNode: e.gpus, Memory: share.Bytes(e.memory) << 10 * share.MiB, Gamma: 10 * e.gamma, Whole: !e.cut,
	}
	begin := time.Now()
	r := events.Run(e.list, cluster, policy)
	seconds := time.Since(begin).Seconds()
	e.storeTimeline(name, r.Timeline)
	return []report.Figure{
		{Name: "peak_gpus", Value: float64(r.Peak)},
		{Name: "mean_gpus", Value: r.Mean, Digits: 1},
		{Name: "sm_fragmentation", Value: 100 * r.SMFragmentation, Digits: 2},
		{Name: "memory_fragmentation", Value: 100 * r.MemoryFragmentation, Digits: 2},
		{Name: "refused", Value: float64(r.Refused)},
		{Name: "decisions_per_second", Value: float64(r.Decisions) / seconds},
	}, nil
}

// storeTimeline stores the number of active GPUs over time under a policy, as a line of the chart. All runs of a policy have the same line.
func (e *eventsSimulation) storeTimeline(policy string, timeline []events.Sample) {
	if slices.ContainsFunc(e.curves, func(l chart.Line) bool { return l.Name == policy }) {
		return
	}
	line := chart.Line{Name: policy}
	var active float64
	for _, s := range timeline {
		at := s.After.Minutes()
		line.Points = append(line.Points, chart.Point{X: at, Y: active}, chart.Point{X: at, Y: float64(s.Active)})
		active = float64(s.Active)
	}
	e.curves = append(e.curves, line)
}

func (e *eventsSimulation) chart([]report.Summary) *chart.Chart {
	return &chart.Chart{Title: "Active GPUs", X: "minutes since the first event", Y: "GPUs", Lines: e.curves}
}
