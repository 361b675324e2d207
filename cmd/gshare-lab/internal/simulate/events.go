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

// eventsSimulation is gshare-lab simulate events.
type eventsSimulation struct {
	file                string
	nodes, gpus, memory int
	gamma               int64
	cut                 bool

	list   []events.Event
	curves []chart.Line // of each policy
}

const eventsLong = `events replays a list of instances that start and stop on a cluster of equal GPUs, and counts the GPUs that hold any. The
list is that of Dilu's simulator (ASPLOS'25, 5.5): one Python dict a line. Nothing is random; runs differ in speed only.

  exclusive      whole GPUs
  limit          INFless-l: packs by the limits of SMs, best fit
  request        INFless-r: packs by the requests, best fit; limits are ignored
  firstfit       requests and limits as Dilu bounds them, on the first GPU with room
  complementary  Dilu's Algorithm 1 as gshare corrects it; the workers of an instance stay on one node
  gshare         the choice of the profile gshare, with the workers of an instance as pods of their own

Before they start a GPU for an LLM, the last two cut it between active GPUs of one node if these have the memory; --cut=false
forbids it. In Kubernetes that is the author's choice (gshare/vgpu), not the scheduler's.

Each run gives:
  peak_gpus             the most GPUs that were active at once
  mean_gpus             over time, from the first event to the last
  sm_fragmentation      SMs of active GPUs beyond what instances request, over time, in percent; what a policy gives away
                        above the request counts as fragmentation
  memory_fragmentation  memory of active GPUs that is free, likewise
  refused               instances that found no room
  decisions_per_second  starts in a second of the whole replay, on one thread`

func simulateEvents() *simulation {
	e := &eventsSimulation{}
	var policies []string
	for _, p := range events.Policies() {
		policies = append(policies, p.Name)
	}
	slices.Reverse(policies) // gshare is the default
	return &simulation{
		name: "events", short: "Replay instances that start and stop, and count the GPUs they need", long: eventsLong,
		example:  "  gshare-lab simulate events --file instances-400.txt --policy all --plot gpus.svg",
		policies: policies, flags: e.flags, prepare: e.prepare, run: e.run, chart: e.chart,
	}
}

func (e *eventsSimulation) flags(f *pflag.FlagSet) {
	f.StringVar(&e.file, "file", "", "list of events (required)")
	f.IntVar(&e.nodes, "nodes", 1000, "number of nodes")
	f.IntVar(&e.gpus, "gpus-per-node", 4, "GPUs of each node")
	f.IntVar(&e.memory, "memory", 40, "GiB of each GPU")
	f.Int64Var(&e.gamma, "gamma", 150, "bound of the sum of limits on a GPU, percent")
	f.BoolVar(&e.cut, "cut", true, "let complementary and gshare cut LLMs rather than start a GPU")
}

func (e *eventsSimulation) prepare() error {
	switch {
	case e.file == "":
		return errors.New("--file: a list of events is needed")
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
	e.keep(name, r.Timeline)
	return []report.Figure{
		{Name: "peak_gpus", Value: float64(r.Peak)},
		{Name: "mean_gpus", Value: r.Mean, Digits: 1},
		{Name: "sm_fragmentation", Value: 100 * r.SMFragmentation, Digits: 2},
		{Name: "memory_fragmentation", Value: 100 * r.MemoryFragmentation, Digits: 2},
		{Name: "refused", Value: float64(r.Refused)},
		{Name: "decisions_per_second", Value: float64(r.Decisions) / seconds},
	}, nil
}

// keep remembers the timeline of a policy for the picture, as steps; all runs give the same.
func (e *eventsSimulation) keep(policy string, timeline []events.Sample) {
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
