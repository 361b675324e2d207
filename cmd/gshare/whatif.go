package main

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/live"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/usage"
	"github.com/gshare-dev/gshare/cmd/internal/chart"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/whatif"
)

const whatifLong = `Estimate how many GPUs and nodes the pods of a running cluster would need with gshare.

whatif reads the nodes and pods, packs the pods that hold GPUs with the rules of gshare's scheduler, and compares the result with what
they hold now. gshare need not be installed. It needs permission to list nodes and pods, and changes nothing.

It counts whole GPUs, time-sliced GPUs, MIG instances, memory and cores of HAMi and Volcano, and shares of gshare. The need of a pod
is its measured use (--usage), else what its resources state, else --assume for a pod with one whole GPU. Containers with several GPUs keep
whole GPUs unless their use is measured. Annotations gshare.dev/* apply. Pods stay in their node pool and fit its CPU and memory.
The number of GPUs is exact to one percent.`

// whatifRun holds the flags of gshare whatif, which compares the GPUs that pods use today with those that they would need with gshare.
type whatifRun struct {
	cluster             cluster.Flags
	format              output.Format
	assume, usage, plot string
	mixTenants          bool
	options             live.Options
}

func whatifCommand() *cobra.Command {
	w := &whatifRun{}
	cmd := &cobra.Command{
		Use: "whatif", Short: "Estimate how many GPUs gshare would save in a running cluster", Long: whatifLong, Args: cli.NoArgs,
		Example: "  gshare whatif --assume sm=30,mem=16384\n  gshare whatif --usage usage.csv --output json --plot whatif.svg",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := w.check(); err != nil {
				return cli.Usage(err)
			}
			c, err := w.cluster.Connect()
			if err != nil {
				return cli.Usage(err)
			}
			result, err := w.compare(cmd.Context(), c.Client)
			if err != nil {
				return err
			}
			return w.write(cmd.OutOrStdout(), result)
		},
	}
	f := cmd.Flags()
	w.cluster.AddTo(cmd)
	f.StringSliceVarP(&w.options.Namespaces, "namespace", "n", nil, "count only GPU pods of these namespaces (default: all)")
	f.StringVar(&w.assume, "assume", usage.DefaultAssumption.String(),
		"need of a pod with one whole GPU: percent of SMs and of time, MiB or percent of memory")
	f.StringVar(&w.usage, "usage", "", "CSV file of the measured use of each GPU of a pod: namespace,pod,sm_percent,memory_mib")
	f.Int64Var(&w.options.GPUMemory, "gpu-memory", 81920, "memory in MiB of GPUs on nodes without the label nvidia.com/gpu.memory")
	f.BoolVar(&w.mixTenants, "mix-tenants", false, "let pods of different namespaces share a GPU")
	w.format.AddTo(cmd)
	f.StringVar(&w.plot, "plot", "", "also write a chart to this file (.svg or .png)")
	return cmd
}

func (w *whatifRun) check() (err error) {
	switch {
	case w.plot != "" && !chart.Known(w.plot):
		return fmt.Errorf("--plot: unsupported file type %q: must be .svg or .png", w.plot)
	case w.options.GPUMemory < 1:
		return fmt.Errorf("--gpu-memory: must be positive, got %d", w.options.GPUMemory)
	}
	if w.options.Assume, err = usage.ParseAssumption(w.assume); err != nil {
		return fmt.Errorf("--assume: %w", err)
	}
	return w.readUsage()
}

func (w *whatifRun) readUsage() error {
	if w.usage == "" {
		return nil
	}
	f, err := os.Open(w.usage)
	if err != nil {
		return fmt.Errorf("--usage: %w", err)
	}
	defer f.Close()
	if w.options.Usage, err = usage.Read(f); err != nil {
		return fmt.Errorf("--usage %s: %w", w.usage, err)
	}
	return nil
}

// comparison is the output of gshare whatif: for each node pool and GPU model, the GPUs in use today and those needed with gshare.
type comparison struct {
	Assumed string       `json:"assumed"`
	Rows    []whatif.Row `json:"rows"`
	Total   whatif.Row   `json:"total"`
	Notes   []string     `json:"notes"`
}

// compare reads the cluster, packs its pods as gshare would, and returns the comparison.
func (w *whatifRun) compare(ctx context.Context, client kubernetes.Interface) (*comparison, error) {
	cluster, err := live.Read(ctx, client, w.options)
	if err != nil {
		return nil, err
	}
	rules := packing.NewRules(packing.Slots)
	rules.MixTenants = w.mixTenants
	c := &comparison{Assumed: w.options.Assume.String(), Notes: cluster.Notes}
	c.Rows = whatif.Compare(cluster.Nodes, cluster.Pods, rules)
	c.Total = whatif.Total(c.Rows)
	return c, nil
}

// rowName returns the name of a row of the comparison, from its node pool and its GPU model.
func rowName(r whatif.Row) string {
	model := cmp.Or(r.Model, "unknown model")
	if r.Pool == "" {
		return model
	}
	return r.Pool + ", " + model
}
