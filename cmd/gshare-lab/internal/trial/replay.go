package trial

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/lab/audit"
	"github.com/gshare-dev/gshare/lab/trace"
	"github.com/gshare-dev/gshare/manifests"
	"github.com/gshare-dev/gshare/test/controlplane"
	"github.com/gshare-dev/gshare/test/controlplane/bulk"
)

type replayOptions struct {
	nodes, pods, profile, output string
	limit, replicate             int
	seed                         uint64
}

// profiles are those of manifests/scheduler/config.yaml, the default first.
var profiles = []string{"gshare", "gshare-rectangle", "gshare-complementary"}

var profileHelp = "scheduler profile: " + strings.Join(profiles, ", ")

func replayCommand() *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:   "replay --nodes FILE --pods FILE",
		Short: "Replay a cluster trace through the real scheduler and check every placement",
		Long: "replay creates the nodes of a trace, then its pods at full speed, and waits until each pod is bound or reported\n" +
			"unschedulable. An independent checker then recomputes every GPU from the API server's objects alone.\n\n" +
			"Files are CSV in the form of the openb production trace: nodes sn,cpu_milli,memory_mib,gpu,model and pods\n" +
			"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec. A pod with gpu_milli g asks for ceil(g/10) percent of the\n" +
			"SMs at full quota and that part of the memory; several GPUs are whole ones; gpu_spec lists accepted models.",
		Example: "  gshare-lab replay --nodes nodes.csv --pods pods.csv --output json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return replay(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.nodes, "nodes", "", "CSV file of nodes (required)")
	f.StringVar(&o.pods, "pods", "", "CSV file of pods (required)")
	f.StringVar(&o.profile, "profile", profiles[0], profileHelp)
	f.IntVar(&o.limit, "limit", 0, "replay only the first pods of the list; 0 is all")
	f.IntVar(&o.replicate, "replicate", 1, "repeat nodes and pods this many times")
	f.Uint64Var(&o.seed, "seed", 0, "shuffle the pods by this seed; 0 keeps the order of the file")
	f.StringVarP(&o.output, "output", "o", "table", "json or table")
	cobra.CheckErr(cmd.MarkFlagRequired("nodes"))
	cobra.CheckErr(cmd.MarkFlagRequired("pods"))
	return cmd
}

func (o replayOptions) validate() error {
	switch {
	case !slices.Contains(profiles, o.profile):
		return cli.Usage(fmt.Errorf("--profile: %q is none of %s", o.profile, strings.Join(profiles, ", ")))
	case o.output != "json" && o.output != "table":
		return cli.Usage(fmt.Errorf("--output: %q is neither json nor table", o.output))
	case o.limit < 0:
		return cli.Usage(fmt.Errorf("--limit: %d is negative", o.limit))
	case o.replicate < 1 || o.replicate > 100:
		return cli.Usage(fmt.Errorf("--replicate: %d is not between 1 and 100", o.replicate))
	}
	return nil
}

// load reads the trace as the options want it.
func (o replayOptions) load() ([]trace.Node, []trace.Pod, error) {
	nodes, err := trace.ReadNodes(o.nodes)
	if err != nil {
		return nil, nil, cli.Usage(err)
	}
	pods, err := trace.ReadPods(o.pods)
	if err != nil {
		return nil, nil, cli.Usage(err)
	}
	if o.seed != 0 {
		r := rand.New(rand.NewPCG(o.seed, 0))
		r.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	}
	if o.limit > 0 {
		pods = pods[:min(o.limit, len(pods))]
	}
	nodes, pods = trace.Replicate(nodes, pods, o.replicate)
	return nodes, pods, nil
}

// replayResult is the JSON that replay prints.
type replayResult struct {
	Nodes             int              `json:"nodes"`
	GPUs              int              `json:"gpus"`
	Pods              int              `json:"pods"`
	Bound             int              `json:"bound"`
	Unschedulable     int              `json:"unschedulable"`
	GPUsUsed          int              `json:"gpus_used"`
	AllocationPercent float64          `json:"allocation_percent"` // GPU asked for by the bound pods, of all GPUs
	Violations        int              `json:"violations"`
	Admissible        int              `json:"admissible"` // unschedulable pods that some node would admit; must be 0
	PodsPerSecond     float64          `json:"pods_per_second"`
	P50Millis         float64          `json:"p50_ms"`
	P99Millis         float64          `json:"p99_ms"`
	Cycles            map[string]int64 `json:"cycles"` // scheduling cycles by how many nodes were filtered
	Details           []string         `json:"details,omitempty"`
}

func replay(ctx context.Context, o replayOptions, out io.Writer) (err error) {
	if err := o.validate(); err != nil {
		return err
	}
	nodes, pods, err := o.load()
	if err != nil {
		return err
	}
	s, err := startSandbox(ctx, cli.NewConsole())
	if err != nil {
		return err
	}
	defer func() { err = firstError(err, s.Stop()) }()
	result, err := s.replay(ctx, o, nodes, pods)
	if err != nil {
		return err
	}
	if err := result.print(out, o.output); err != nil {
		return err
	}
	return result.verdict()
}

func (s *sandbox) replay(ctx context.Context, o replayOptions, nodes []trace.Node, pods []trace.Pod) (*replayResult, error) {
	objects, err := nodeObjects(nodes)
	if err != nil {
		return nil, err
	}
	if err := s.addNodes(ctx, objects); err != nil {
		return nil, err
	}
	s.console.Step("Starting gshare-scheduler")
	scheduler, err := s.StartScheduler(ctx, "gshare", manifests.SchedulerConfig, controlplane.SchedulerOptions{})
	if err != nil {
		return nil, err
	}
	if err := s.runPods(ctx, podObjects(pods, o.profile, trace.Models(nodes)), scheduler); err != nil {
		return nil, err
	}
	result := &replayResult{Nodes: len(nodes), Pods: len(pods)}
	if err := result.readCycles(ctx, scheduler); err != nil {
		return nil, err
	}
	result.readTimes(s.tracker)
	return result, s.audit(ctx, result, pods)
}

func nodeObjects(nodes []trace.Node) ([]*v1.Node, error) {
	out := make([]*v1.Node, len(nodes))
	for i, n := range nodes {
		var err error
		if out[i], err = n.Object(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func podObjects(pods []trace.Pod, profile string, models []string) []*v1.Pod {
	out := make([]*v1.Pod, len(pods))
	for i, p := range pods {
		out[i] = p.Object(profile, models)
	}
	return out
}

func (r *replayResult) readTimes(t *bulk.Tracker) {
	each, whole := t.Latencies()
	r.P50Millis, r.P99Millis = millis(bulk.Quantile(each, 0.5)), millis(bulk.Quantile(each, 0.99))
	if whole > 0 {
		r.PodsPerSecond = round1(float64(len(each)) / whole.Seconds())
	}
}

func millis(d time.Duration) float64 { return round1(float64(d) / float64(time.Millisecond)) }

func round1(x float64) float64 { return float64(int64(x*10+0.5)) / 10 }

func (r *replayResult) readCycles(ctx context.Context, scheduler *controlplane.Process) error {
	m, err := scrape(ctx, scheduler)
	if err != nil {
		return err
	}
	r.Cycles = map[string]int64{}
	for _, sample := range m["gshare_scheduler_cycles_total"].GetMetric() {
		for _, l := range sample.GetLabel() {
			if l.GetName() == "nodes" {
				r.Cycles[l.GetValue()] += int64(sample.GetCounter().GetValue())
			}
		}
	}
	return nil
}

// audit has the checker recompute everything from the API server's objects.
func (s *sandbox) audit(ctx context.Context, r *replayResult, pods []trace.Pod) error {
	s.console.Step("Checking every GPU from the API server's objects")
	nodes, live, err := bulk.Objects(ctx, s.client)
	if err != nil {
		return err
	}
	report := audit.Check(nodes, live, audit.Options{})
	r.GPUs, r.GPUsUsed, r.Violations = report.GPUs, report.GPUsUsed, len(report.Violations)
	for _, v := range report.Violations {
		r.Details = append(r.Details, v.Node+" "+v.Slice+" "+v.Pod+": "+v.Text)
	}
	asked := make(map[string]int64, len(pods))
	for _, p := range pods {
		asked[p.Name] = p.TotalMilli()
	}
	r.countPods(report, live, asked)
	return nil
}

func (r *replayResult) countPods(report audit.Report, live []v1.Pod, asked map[string]int64) {
	var milli int64
	for _, pod := range live {
		if pod.Spec.NodeName != "" {
			r.Bound++
			milli += asked[pod.Name]
			continue
		}
		r.Unschedulable++
		if admitting := report.Admissible(pod); len(admitting) > 0 {
			r.Admissible++
			r.Details = append(r.Details, fmt.Sprintf("pod %s is unschedulable, but node %s would admit it", pod.Name, admitting[0]))
		}
	}
	if r.GPUs > 0 {
		r.AllocationPercent = float64(milli*100/int64(r.GPUs)) / 1000
	}
}

func (r *replayResult) print(out io.Writer, format string) error {
	if format == "json" {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	fmt.Fprintf(out, "nodes            %d\nGPUs             %d, %d used\npods             %d, %d bound, %d unschedulable\n",
		r.Nodes, r.GPUs, r.GPUsUsed, r.Pods, r.Bound, r.Unschedulable)
	fmt.Fprintf(out, "GPU allocation   %.2f %%\nthroughput       %.1f pods/s\nlatency          p50 %.1f ms, p99 %.1f ms\n",
		r.AllocationPercent, r.PodsPerSecond, r.P50Millis, r.P99Millis)
	_, err := fmt.Fprintf(out, "violations       %d\n", r.Violations)
	for _, d := range r.Details {
		fmt.Fprintln(out, "  "+d)
	}
	return err
}

// verdict makes a replay that found fault fail.
func (r *replayResult) verdict() error {
	if r.Violations > 0 || r.Admissible > 0 {
		return fmt.Errorf("%d violations, %d unschedulable pods that a node would admit", r.Violations, r.Admissible)
	}
	return nil
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
