package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/live"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/usage"
	"github.com/gshare-dev/gshare/cmd/internal/chart"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
)

const whatifLong = `whatif reads the nodes and pods of a running cluster, and packs the pods that hold GPUs once more, by the rules of gshare's
scheduler. It says how many GPUs and nodes they hold now, and how many they would need. It lists nodes and pods and changes
nothing; it needs permission for that and no more.

Pods of any plugin count: whole GPUs, time-sliced GPUs, MIG instances, HAMi's and Volcano's memory and cores, and gshare's own.
What a pod needs is taken from --usage, else from its resources; a pod with one whole GPU is taken to need --assume. A container
with several GPUs keeps them whole unless its use was measured. Annotations gshare.dev/* of pods are obeyed. Pods stay in their
pool of nodes, and CPU and memory of nodes are respected. The GPUs needed are found to within one hundredth.`

// whatifRun is gshare whatif: its flags, and what they name.
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
		Use: "whatif", Short: "Say how many GPUs of a running cluster gshare would leave free", Long: whatifLong, Args: cobra.NoArgs,
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
		"what a pod with one whole GPU needs: percent of SMs, percent of time, MiB or percent of the memory")
	f.StringVar(&w.usage, "usage", "", "CSV file of measured use, for each GPU of a pod: namespace,pod,sm_percent,memory_mib")
	f.Int64Var(&w.options.GPUMemory, "gpu-memory", 81920, "MiB of a GPU on nodes without the label nvidia.com/gpu.memory")
	f.BoolVar(&w.mixTenants, "mix-tenants", false, "let pods of different namespaces share a GPU")
	w.format.AddTo(cmd)
	f.StringVar(&w.plot, "plot", "", "also draw the result into this file (.svg or .png)")
	return cmd
}

func (w *whatifRun) check() (err error) {
	switch {
	case w.plot != "" && !chart.Known(w.plot):
		return fmt.Errorf("--plot: %q ends neither in .svg nor in .png", w.plot)
	case w.options.GPUMemory < 1:
		return fmt.Errorf("--gpu-memory: %d is not a positive number", w.options.GPUMemory)
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
