package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
	"github.com/gshare-dev/gshare/test/controlplane"
	"github.com/gshare-dev/gshare/test/controlplane/bulk"
)

// benchOptions holds the flags of gshare-lab bench.
type benchOptions struct {
	nodes        []int
	pods, rounds int
	wide         bool
	profiles     string // folder
	format       output.Format
}

func benchCommand() *cobra.Command {
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Compare the scheduling throughput of gshare and stock kube-scheduler",
		Long: "Schedule the same number of pods on the same nodes, in turn with stock kube-scheduler (pods request one unit of a plain\n" +
			"extended resource) and with gshare (pods request a share). Each round starts new schedulers, in alternating order. Compare\n" +
			"the ratios, not the absolute figures, which depend on the load of the machine. The processor time (CPU) is measured for the\n" +
			"whole scheduler, with its informers and bindings, and depends least on what else runs.",
		Example: "  gshare-lab bench --nodes 1000,5000 --rounds 3",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntSliceVar(&o.nodes, "nodes", []int{1000, 5000}, "cluster sizes")
	f.IntVar(&o.pods, "pods", 2000, "number of pods in each round")
	f.IntVar(&o.rounds, "rounds", 3, "number of rounds")
	f.BoolVar(&o.wide, "wide", false, "also measure gshare without candidate nodes, so that it filters every node for every pod")
	f.StringVar(&o.profiles, "profiles", "", "directory for CPU profiles of each scheduler's first seconds with pods; none if empty")
	o.format.AddTo(cmd)
	return cmd
}

func (o benchOptions) validate() error {
	if o.profiles != "" {
		if err := output.CheckFolder(o.profiles); err != nil {
			return cli.Usagef("--profiles: %w", err)
		}
	}
	switch {
	case o.pods < 1 || o.rounds < 1:
		return cli.Usage(fmt.Errorf("--pods and --rounds must be at least 1"))
	case len(o.nodes) == 0 || slices.Min(o.nodes) < 1:
		return cli.Usage(fmt.Errorf("--nodes: every size must be at least 1"))
	case slices.Min(o.nodes)*benchGPUs < o.pods:
		return cli.Usage(fmt.Errorf("--nodes: %d nodes with %d GPUs each cannot hold %d pods with a whole GPU", slices.Min(o.nodes), benchGPUs, o.pods))
	}
	return nil
}

// benchSize holds the measurements of all scheduler configurations on a cluster of one size.
type benchSize struct {
	Nodes int                    `json:"nodes"`
	Sides map[string]*benchSide  `json:"sides"`
	Ratio map[string]benchRatios `json:"ratio_to_stock"` // medians of the ratios of each round
}

// benchSide holds the measurements of one scheduler configuration, one value for each round.
type benchSide struct {
	PodsPerSecond   []float64 `json:"pods_per_second"`
	AlgorithmMicros []float64 `json:"algorithm_us"` // mean time of the scheduling algorithm for a pod
	CPUMicros       []float64 `json:"cpu_us"`       // processor time of the whole scheduler for a pod
}

// benchRatios holds the figures of a scheduler divided by those of stock kube-scheduler.
type benchRatios struct {
	PodsPerSecond float64 `json:"pods_per_second"`
	Algorithm     float64 `json:"algorithm"`
	CPU           float64 `json:"cpu"`
}

func bench(ctx context.Context, o benchOptions, out io.Writer) error {
	if err := o.validate(); err != nil {
		return err
	}
	var sizes []*benchSize
	console := cli.NewConsole()
	for _, n := range o.nodes {
		size, err := o.measure(ctx, console, n)
		if err != nil {
			return err
		}
		sizes = append(sizes, size)
	}
	return o.format.Write(out, sizes, func(w io.Writer) error { return writeBench(w, sizes) })
}

func (o benchOptions) measure(ctx context.Context, c *cli.Console, n int) (size *benchSize, err error) {
	s, err := startSandbox(ctx, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = cmp.Or(err, s.Stop()) }()
	nodes, err := nodeObjects(benchNodes(n))
	if err != nil {
		return nil, err
	}
	for _, node := range nodes {
		addWholeUnits(node)
	}
	if err := s.addNodes(ctx, nodes); err != nil {
		return nil, err
	}
	size = &benchSize{Nodes: n, Sides: map[string]*benchSide{}, Ratio: map[string]benchRatios{}}
	for round := range o.rounds {
		if err := o.measureRound(ctx, s, size, round); err != nil {
			return nil, err
		}
	}
	size.computeRatios()
	return size, nil
}

// measureRound measures each scheduler configuration once. Odd rounds measure them in reverse order, which evens out effects of the order.
func (o benchOptions) measureRound(ctx context.Context, s *sandbox, size *benchSize, round int) error {
	sides := contenders(o.wide)
	if round%2 == 1 {
		slices.Reverse(sides)
	}
	for _, c := range sides {
		s.console.Step("%d nodes, round %d of %d: %s", size.Nodes, round+1, o.rounds, c.name)
		if err := o.run(ctx, s, size, c, round); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

func (o benchOptions) run(ctx context.Context, s *sandbox, size *benchSize, c contender, round int) error {
	scheduler, err := s.StartScheduler(ctx, fmt.Sprintf("%s-%d", c.name, round), c.config, controlplane.SchedulerOptions{})
	if err != nil {
		return err
	}
	defer scheduler.Stop()
	before, err := scrape(ctx, scheduler)
	if err != nil {
		return err
	}
	profiled := o.profile(ctx, scheduler, fmt.Sprintf("%s-%d-%d.pprof", c.name, size.Nodes, round))
	if err := errors.Join(s.runPods(ctx, benchPods(o.pods, c), scheduler), <-profiled); err != nil {
		return err
	}
	if p := s.tracker.Progress(); p.Bound != o.pods {
		return fmt.Errorf("only %d of %d pods were bound", p.Bound, o.pods)
	}
	if err := size.record(ctx, c.name, s.tracker, scheduler, before); err != nil {
		return err
	}
	return bulk.DeletePods(ctx, s.client, s.tracker)
}

// profileSeconds is the length of a CPU profile.
const profileSeconds = 5

// profile writes a CPU profile of the scheduler to a file if the flag for profiles is set. The channel receives its error or nil; without the
// flag it is closed at once.
func (o benchOptions) profile(ctx context.Context, p *controlplane.Process, name string) <-chan error {
	done := make(chan error, 1)
	if o.profiles == "" {
		close(done)
		return done
	}
	go func() {
		content, err := p.Get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", profileSeconds))
		if err != nil {
			done <- fmt.Errorf("profile the scheduler: %w", err)
			return
		}
		done <- os.WriteFile(filepath.Join(o.profiles, name), content, 0o600)
	}()
	return done
}

// record adds the measurements of a scheduler. before holds its metrics before the first pod was created.
func (z *benchSize) record(ctx context.Context, name string, t *bulk.Tracker, p *controlplane.Process, before metrics) error {
	m, err := scrape(ctx, p)
	if err != nil {
		return err
	}
	side := z.Sides[name]
	if side == nil {
		side = &benchSide{}
		z.Sides[name] = side
	}
	each, whole := t.Latencies()
	const algorithm, cpu = "scheduler_scheduling_algorithm_duration_seconds", "process_cpu_seconds_total"
	side.PodsPerSecond = append(side.PodsPerSecond, round1(float64(len(each))/whole.Seconds()))
	mean := m.sum(algorithm, "", "") / max(1, m.count(algorithm)) * float64(time.Second/time.Microsecond)
	side.AlgorithmMicros = append(side.AlgorithmMicros, round1(mean))
	used := (m.sum(cpu, "", "") - before.sum(cpu, "", "")) / float64(max(1, len(each))) * float64(time.Second/time.Microsecond)
	side.CPUMicros = append(side.CPUMicros, round1(used))
	return nil
}

// computeRatios sets the ratios of each scheduler's figures to those of stock kube-scheduler in the same round: the median over the rounds.
func (z *benchSize) computeRatios() {
	stock := z.Sides[stockName]
	for name, side := range z.Sides {
		if name != stockName {
			z.Ratio[name] = benchRatios{
				PodsPerSecond: medianRatio(side.PodsPerSecond, stock.PodsPerSecond),
				Algorithm:     medianRatio(side.AlgorithmMicros, stock.AlgorithmMicros),
				CPU:           medianRatio(side.CPUMicros, stock.CPUMicros),
			}
		}
	}
}

func medianRatio(a, b []float64) float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return float64(int(median(ratios)*1000+0.5)) / 1000
}

func median(x []float64) float64 {
	s := slices.Sorted(slices.Values(x))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

// writeBench writes a table with a line for each cluster size and scheduler configuration.
func writeBench(out io.Writer, sizes []*benchSize) error {
	fmt.Fprintf(out, "%-7s %-12s %10s %14s %14s %8s %10s %8s\n", "nodes", "side", "pods/s", "algorithm us", "CPU us", "pods/s", "algorithm", "CPU")
	fmt.Fprintf(out, "%-7s %-12s %10s %14s %14s %8s %10s %8s\n", "", "", "median", "mean per pod", "mean per pod", "ratio", "ratio", "ratio")
	for _, z := range sizes {
		for _, c := range contenders(true) {
			side := z.Sides[c.name]
			if side == nil {
				continue
			}
			ratio := benchRatios{1, 1, 1}
			if r, ok := z.Ratio[c.name]; ok {
				ratio = r
			}
			fmt.Fprintf(out, "%-7d %-12s %10.1f %14.1f %14.1f %8.3f %10.3f %8.3f\n", z.Nodes, c.name, median(side.PodsPerSecond),
				median(side.AlgorithmMicros), median(side.CPUMicros), ratio.PodsPerSecond, ratio.Algorithm, ratio.CPU)
		}
	}
	return nil
}
