package trial

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
	"github.com/gshare-dev/gshare/lab/audit"
	"github.com/gshare-dev/gshare/lab/trace"
	"github.com/gshare-dev/gshare/manifests"
	"github.com/gshare-dev/gshare/test/controlplane"
	"github.com/gshare-dev/gshare/test/controlplane/bulk"
)

// replayOptions holds the flags of gshare-lab replay.
type replayOptions struct {
	nodes, pods, profile string
	limit, replicate     int
	seed                 uint64
	format               output.Format
}

// profiles holds the scheduler profiles of manifests/scheduler/config.yaml; the first is the default.
var profiles = []string{"gshare", "gshare-rectangle", "gshare-complementary"}

var profileHelp = "scheduler profile: " + strings.Join(profiles, ", ")

func replayCommand() *cobra.Command {
	var o replayOptions
	cmd := &cobra.Command{
		Use:   "replay --nodes FILE --pods FILE",
		Short: "Replay a cluster trace with gshare-scheduler and check every placement",
		Long: "Create the nodes and pods of a trace, and wait until each pod is bound or reported unschedulable. Then a checker that\n" +
			"is independent of the scheduler recomputes every GPU from the API objects.\n\n" +
			"The files are CSV in the format of the openb production trace. Pods have the columns\n" +
			"name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec. A pod with gpu_milli g requests ceil(g/10) percent of the SMs all of\n" +
			"the time, and that part of the memory. A pod with several GPUs gets whole GPUs. gpu_spec lists the accepted models.",
		Example: "  gshare-lab replay --nodes nodes.csv --pods pods.csv --output json",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return replay(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.nodes, "nodes", "", trace.NodesHelp()+" (required)")
	f.StringVar(&o.pods, "pods", "", "CSV file of pods (required)")
	f.StringVar(&o.profile, "profile", profiles[0], profileHelp)
	f.IntVar(&o.limit, "limit", 0, "number of pods to replay; 0 for all")
	f.IntVar(&o.replicate, "replicate", 1, "number of copies of nodes and pods")
	f.Uint64Var(&o.seed, "seed", 0, "random seed for shuffling the pods; 0 keeps the order of the file")
	o.format.AddTo(cmd)
	cobra.CheckErr(cmd.MarkFlagRequired("nodes"))
	cobra.CheckErr(cmd.MarkFlagRequired("pods"))
	return cmd
}

func (o replayOptions) validate() error {
	switch {
	case !slices.Contains(profiles, o.profile):
		return cli.Usage(fmt.Errorf("--profile: unknown profile %q: must be one of %s", o.profile, strings.Join(profiles, ", ")))
	case o.limit < 0:
		return cli.Usage(fmt.Errorf("--limit: must not be negative, got %d", o.limit))
	case o.replicate < 1 || o.replicate > 100:
		return cli.Usage(fmt.Errorf("--replicate: must be from 1 to 100, got %d", o.replicate))
	}
	return nil
}

// load reads the nodes and pods of the trace, then shuffles, truncates and replicates them as the flags say.
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

// replayResult is the output of gshare-lab replay: how many pods were bound, how fast, and the violations found.
type replayResult struct {
	Nodes             int              `json:"nodes"`
	GPUs              int              `json:"gpus"`
	Pods              int              `json:"pods"`
	Bound             int              `json:"bound"`
	Unschedulable     int              `json:"unschedulable"`
	GPUsUsed          int              `json:"gpus_used"`
	AllocationPercent float64          `json:"allocation_percent"` // GPUs requested by the bound pods, in percent of all GPUs
	Violations        int              `json:"violations"`
	Admissible        int              `json:"admissible"` // unschedulable pods that some node would admit; must be 0
	PodsPerSecond     float64          `json:"pods_per_second"`
	P50Millis         float64          `json:"p50_ms"`
	P99Millis         float64          `json:"p99_ms"`
	Cycles            map[string]int64 `json:"cycles"` // number of scheduling cycles by the number of filtered nodes
	Details           []string         `json:"details,omitempty"`
}

func replay(ctx context.Context, o replayOptions, out io.Writer) error {
	if err := o.validate(); err != nil {
		return err
	}
	nodes, pods, err := o.load()
	if err != nil {
		return err
	}
	return o.play(ctx, nodes, pods, func(_ *sandbox, result *replayResult) error {
		return o.format.Write(out, result, result.writeTable)
	})
}

// play starts a control plane, replays the pods on it and shows the result. It returns an error if the checker found violations.
func (o replayOptions) play(ctx context.Context, nodes []trace.Node, pods []trace.Pod, show func(*sandbox, *replayResult) error) (err error) {
	s, err := startSandbox(ctx, cli.NewConsole())
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, s.Stop()) }()
	result, err := s.replay(ctx, o, nodes, pods)
	if err != nil {
		return err
	}
	if err := show(s, result); err != nil {
		return err
	}
	return result.violationError()
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
	if err := s.runPods(ctx, podObjects(pods, o.profile, trace.Devices(nodes)), scheduler); err != nil {
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

func podObjects(pods []trace.Pod, profile string, gpus map[string]trace.Device) []*v1.Pod {
	out := make([]*v1.Pod, len(pods))
	for i, p := range pods {
		out[i] = p.Object(profile, gpus)
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

// audit recomputes the allocation of every GPU from the API objects, independently of the scheduler, and adds violations to the result.
func (s *sandbox) audit(ctx context.Context, r *replayResult, pods []trace.Pod) error {
	s.console.Step("Checking every GPU from the API server's objects")
	nodes, live, err := bulk.ListObjects(ctx, s.client)
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

// writeTable writes the figures one on each line, followed by the details of violations.
func (r *replayResult) writeTable(out io.Writer) error {
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

// violationError returns an error if the audit found a violation, or an unschedulable pod that some node would admit.
func (r *replayResult) violationError() error {
	if r.Violations > 0 || r.Admissible > 0 {
		return fmt.Errorf("%d violations, %d unschedulable pods that a node would admit", r.Violations, r.Admissible)
	}
	return nil
}
