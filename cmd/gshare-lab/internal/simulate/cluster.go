package simulate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/gshare-dev/gshare/cmd/gshare-lab/internal/report"
	"github.com/gshare-dev/gshare/cmd/internal/chart"
	"github.com/gshare-dev/gshare/lab/cluster"
	"github.com/gshare-dev/gshare/lab/trace"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// clusterSimulation holds the flags and inputs of gshare-lab simulate cluster, which packs a trace of pods on the nodes of a cluster.
type clusterSimulation struct {
	nodesFile, podsFile string
	order               string
	load                float64
	replicate           int

	nodes  []cluster.Node
	pods   []cluster.Pod
	curves []chart.Line // of the first run of each policy
}

const clusterLong = `Pack a trace of pods on the nodes of a cluster by the method of FGD (ATC'23): pods arrive in random order until they have requested
--load times the GPUs of the cluster. Pods never end, and pods that do not fit are dropped.

Figures of each run:
  allocation_percent_100  GPUs in use, in percent, when the requests equal the GPUs of the cluster
  allocation_percent_130  GPUs in use, in percent, at the end: when the requests are --load times the GPUs
  fragmentation           idle GPUs at the end that a random typical pod could not use, in percent of all GPUs
  decisions_per_second    pods decided per second, on one thread

Of nodes with equal scores, fgd chooses the first, as in its published results, and fgd-stock a random one, as kube-scheduler does.

The policies after fgd-stock are variants of gshare that were tried to allocate more. They are not part of the scheduler:
  known     the typical requests of the whole list of pods are known from the start
  bygpu     typical pods are weighted by the GPUs that they request
  worth     what is left of a device is valued by the best combination of typical requests that fits, at the prices of a linear program
  reserve   unused devices are kept for pods with whole GPUs, and unused nodes for pods with several GPUs
  coarse    costs that differ by less than 4 % of a GPU are equal
  together  64 pods wait at a time, and the largest of them is placed first
  ahead     the four best nodes are compared by the cost of then placing 24 pods like those that are running`

func simulateCluster() *simulation {
	c := &clusterSimulation{}
	return &simulation{
		name: "cluster", short: "Pack a trace of pods on the nodes of a cluster", long: clusterLong,
		example:  "  gshare-lab simulate cluster --nodes nodes.csv --pods pods.csv --policy gshare,fgd --runs 10",
		policies: cluster.Policies(), variants: cluster.Tries(), flags: c.flags, prepare: c.prepare, run: c.run, chart: c.chart,
	}
}

func (c *clusterSimulation) flags(f *pflag.FlagSet) {
	f.StringVar(&c.nodesFile, "nodes", openbNodes, trace.NodesHelp())
	f.StringVar(&c.podsFile, "pods", openbPods, "CSV file of pods: name, cpu_milli, memory_mib, num_gpu, gpu_milli, and optionally gpu_spec")
	f.Float64Var(&c.load, "load", 1.3, "GPUs requested at the end, as a multiple of the GPUs of the cluster")
	f.IntVar(&c.replicate, "replicate", 1, "number of copies of the nodes and of the pods")
	f.StringVar(&c.order, "order", cluster.RandomOrder, "order of the nodes; among equal nodes, the first is chosen: "+strings.Join(cluster.Orders(), ", "))
}

// Upper bounds of flags, to catch typing errors.
const (
	maxLoad      = 10
	maxReplicate = 100
)

func (c *clusterSimulation) prepare() error {
	switch {
	case c.nodesFile == "" || c.podsFile == "":
		return errors.New("--nodes and --pods are required")
	case !(c.load > 0 && c.load <= maxLoad): // NaN, too
		return fmt.Errorf("--load: %v is not above 0 and at most %d", c.load, maxLoad)
	case c.replicate < 1 || c.replicate > maxReplicate:
		return fmt.Errorf("--replicate: %d is not between 1 and %d", c.replicate, maxReplicate)
	case !slices.Contains(cluster.Orders(), c.order):
		return fmt.Errorf("--order: unknown value %q: must be one of %s", c.order, strings.Join(cluster.Orders(), ", "))
	}
	return c.read()
}

func (c *clusterSimulation) read() error {
	nodes, err := trace.ReadNodes(c.nodesFile)
	if err != nil {
		return err
	}
	pods, err := trace.ReadPods(c.podsFile)
	if err != nil {
		return err
	}
	nodes, pods = trace.Replicate(nodes, pods, c.replicate)
	c.nodes, c.pods = clusterNodes(nodes), clusterPods(pods)
	_, err = c.simulation(cluster.Policies()[0], 0) // validates the whole input, such as a cluster without GPUs
	return err
}

func clusterNodes(nodes []trace.Node) []cluster.Node {
	out := make([]cluster.Node, len(nodes))
	for i, n := range nodes {
		out[i] = cluster.Node{Name: n.Name, CPU: packing.MilliCPU(n.MilliCPU), RAM: share.Bytes(n.MemoryMiB) * share.MiB, GPUs: n.GPUs, Model: n.Model}
	}
	return out
}

func clusterPods(pods []trace.Pod) []cluster.Pod {
	out := make([]cluster.Pod, len(pods))
	for i, p := range pods {
		models := slices.Clone(p.Models)
		slices.Sort(models)
		out[i] = cluster.Pod{CPU: packing.MilliCPU(p.MilliCPU), RAM: share.Bytes(p.MemoryMiB) * share.MiB, GPUs: p.GPUs,
			Milli: packing.MilliGPU(p.MilliGPU), Models: slices.Compact(models)}
	}
	return out
}

func (c *clusterSimulation) simulation(policy string, seed uint64) (*cluster.Simulation, error) {
	return cluster.New(cluster.Config{Nodes: c.nodes, Pods: c.pods, Policy: policy, Order: c.order, Load: c.load, Seed: seed})
}

func (c *clusterSimulation) run(ctx context.Context, policy string, seed uint64) ([]report.Figure, error) {
	s, err := c.simulation(policy, seed)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	result, err := s.Run(ctx)
	if err != nil {
		return nil, err
	}
	seconds := time.Since(begin).Seconds()
	c.storeCurve(policy, result.Curve)
	return []report.Figure{
		{Name: "allocation_percent_100", Value: result.AllocatedFull, Digits: 2},
		{Name: "allocation_percent_130", Value: result.AllocatedEnd, Digits: 2},
		{Name: "fragmentation", Value: result.Fragmentation, Digits: 2},
		{Name: "decisions_per_second", Value: float64(result.Decisions) / seconds},
	}, nil
}

// storeCurve stores how the allocation rises in a policy's first run, as a line of the chart.
func (c *clusterSimulation) storeCurve(policy string, curve []cluster.Point) {
	if slices.ContainsFunc(c.curves, func(l chart.Line) bool { return l.Name == policy }) {
		return
	}
	line := chart.Line{Name: policy}
	for _, p := range curve {
		line.Points = append(line.Points, chart.Point{X: p.Arrived, Y: p.Allocated})
	}
	c.curves = append(c.curves, line)
}

func (c *clusterSimulation) chart([]report.Summary) *chart.Chart {
	return &chart.Chart{Title: "GPU allocated, first run of each policy", X: "arrived load, % of the GPUs", Y: "allocated, % of the GPUs", Lines: c.curves}
}
