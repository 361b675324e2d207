package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/live"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/usage"
	"github.com/gshare-dev/gshare/cmd/internal/chart"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
	"github.com/gshare-dev/gshare/vgpu/whatif"
)

const whatifLong = `Estimate how many GPUs and nodes the pods of a running cluster would need with gshare.

whatif reads the nodes and pods, packs the pods that hold GPUs with the rules of gshare's scheduler, and compares the result with what
they hold now. gshare need not be installed. It needs permission to list nodes and pods (of pods with claims, also resourceclaims and
resourceslices), and changes nothing.

What a pod holds is read from its resources, annotations and claims: whole GPUs, time slices, clients of MPS and MIG instances of NVIDIA's
plugin and of GKE; memory and cores of HAMi, Volcano and Koordinator; fractions of KAI and Run:ai; devices of NVIDIA's DRA driver; GPUs of
other vendors; shares of gshare. A pod holds as much as its init containers or its main containers and sidecars need, whichever is more.
Pods that only reserve GPUs for fractions of others are not counted.

Pods and nodes whose use of GPUs is not understood are listed, and then there is no percentage: pods with an unknown resource, and pods on
GPU nodes with RuntimeClass nvidia, NVIDIA_VISIBLE_DEVICES or an annotation for GPUs, but no known request; nodes whose labels and
resources differ, whose pods add up to more GPUs than there are, or whose GPUs may be slices, as there are no labels (--whole-gpus: they
are whole). Not counted: pods that wait, containers that run outside of Kubernetes, and processes that reach GPUs through privileges of
their containers. Pods of DaemonSets that request no GPU count as tools of the node.

The need of a pod is its measured use (--usage), or else what its resources specify. A share of gshare stays as it is. A container with
one whole GPU does not say how much of it is needed: whatif takes what a GPUProfile recommends for its image (--profiles), or else
--assume. Containers with several GPUs keep whole GPUs unless their use is measured. Annotations gshare.dev/* apply. Pods stay in their
node pool and fit its CPU and memory. Where packing would need more GPUs than the present placement, pods that gshare accepts there stay.
The number of GPUs is exact to one percent.

--profiles reads the output of "kubectl get gpuprofiles -A -o yaml", from this cluster or another. A GPUProfile applies to containers with
the digest of its image, on GPUs of its model and, if it has a template, with the same command and args. A GPUProfile that is Stale does
not apply. If several apply, the one with the largest share counts. Notes say which GPUProfiles were used for how many containers, and
which were not used and why.

--rebalance is for clusters that run gshare. It lists the pods that could be moved to GPUs in use so that whole GPUs become free, and the
pods that could be moved so that a waiting pod fits. The moves are in an order in which each pod has a place when it is moved. --rebalance
also needs permission to list namespaces and disruption budgets, and moves nothing. Pods that refuse moves with the annotation
gshare.dev/rebalance stay where they are. Pods that neither agree nor refuse count as willing unless --agreed is set.`

// whatifRun holds the flags of gshare whatif, which compares the GPUs that pods use today with those that they would need with gshare.
type whatifRun struct {
	cluster             cluster.Flags
	format              output.Format
	assume, usage, plot string
	profiles            []string
	mixTenants          bool
	rebalance, agreed   bool
	moves               int
	options             live.Options
}

var _ = beforeSharing.add(whatifCommand)

func whatifCommand() *cobra.Command {
	w := &whatifRun{}
	cmd := &cobra.Command{
		Use: "whatif", Short: "Estimate how many GPUs gshare would save in a running cluster", Long: whatifLong, Args: cli.NoArgs,
		Example: "  gshare whatif --assume sm=30,mem=16384\n  gshare whatif --usage usage.csv --output json --plot whatif.svg\n  gshare whatif --profiles profiles.yaml\n  gshare whatif --rebalance --moves 20",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := w.check(); err != nil {
				return cli.Usage(err)
			}
			c, err := w.cluster.Connect()
			if err != nil {
				return cli.Usage(err)
			}
			if w.rebalance {
				return w.showMoves(cmd.Context(), c.Client, cmd.OutOrStdout())
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
		"assumed need of a pod with one whole GPU: SMs and time in percent, memory in MiB or percent")
	f.StringVar(&w.usage, "usage", "", "CSV file with the measured use of each GPU of a pod: namespace,pod,sm_percent,memory_mib")
	f.StringSliceVar(&w.profiles, "profiles", nil, "files of GPUProfiles, whose recommended shares count as the need of containers with the same image")
	f.Int64Var(&w.options.GPUMemory, "gpu-memory", 81920, "memory in MiB of GPUs on nodes without the label nvidia.com/gpu.memory")
	f.BoolVar(&w.options.WholeGPUs, "whole-gpus", false, "GPUs of nodes without labels are whole, not time slices")
	f.BoolVar(&w.mixTenants, "mix-tenants", false, "assume that pods of different namespaces may share a GPU on all nodes, not only on those with tenancy: mixed")
	f.BoolVar(&w.rebalance, "rebalance", false, "list the pods that could be moved to free whole GPUs or to let waiting pods fit")
	f.BoolVar(&w.agreed, "agreed", false, "with --rebalance: move only pods that agreed, not those that neither agreed nor refused")
	f.IntVar(&w.moves, "moves", 100, "with --rebalance: maximum number of pods to move")
	w.format.AddTo(cmd)
	f.StringVar(&w.plot, "plot", "", "also write a chart to this .svg or .png file")
	return cmd
}

func (w *whatifRun) check() (err error) {
	if err := chart.Check(w.plot); err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	switch {
	case w.plot != "" && w.rebalance:
		return errors.New("--plot: there is no chart of --rebalance")
	case w.usage != "" && w.rebalance:
		return errors.New("--usage: --rebalance goes by the shares that pods have")
	case len(w.profiles) > 0 && w.rebalance:
		return errors.New("--profiles: --rebalance goes by the shares that pods have")
	case w.mixTenants && w.rebalance:
		return errors.New("--mix-tenants: --rebalance goes by the tenancy that nodes have")
	case w.moves < 1:
		return fmt.Errorf("--moves: must be positive, got %d", w.moves)
	case w.options.GPUMemory < 1:
		return fmt.Errorf("--gpu-memory: must be positive, got %d", w.options.GPUMemory)
	}
	if w.options.Assume, err = usage.ParseAssumption(w.assume); err != nil {
		return fmt.Errorf("--assume: %w", err)
	}
	if err := w.readUsage(); err != nil {
		return err
	}
	profiles, err := readProfiles(w.profiles)
	if err != nil {
		return err
	}
	if len(profiles) > 0 {
		w.options.Profiles = usage.NewProfiles(profiles)
	}
	return nil
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
	Unknown []string     `json:"unknown"` // what may hold GPUs in ways that are not known; if any, the numbers are incomplete
}

// compare reads the cluster, packs its pods as gshare would, and returns the comparison.
func (w *whatifRun) compare(ctx context.Context, client kubernetes.Interface) (*comparison, error) {
	cluster, err := live.Read(ctx, client, w.options)
	if err != nil {
		return nil, err
	}
	for _, n := range cluster.Nodes {
		for i := range n.Slices {
			n.Slices[i].MixTenants = n.Slices[i].MixTenants || w.mixTenants
		}
	}
	c := &comparison{Assumed: w.options.Assume.String(), Notes: cluster.Notes, Unknown: append([]string{}, cluster.Unknown...)}
	c.Rows = whatif.Compare(cluster.Nodes, cluster.Pods)
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

func (w *whatifRun) write(out io.Writer, c *comparison) error {
	if err := w.format.Write(out, c, c.writeTable); err != nil || w.plot == "" {
		return err
	}
	if err := c.chart().WriteFile(w.plot); err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	return nil
}

func (c *comparison) writeTable(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "POOL, MODEL\tPODS\tNODES\tGPUS\tHELD NOW\tWITH GSHARE\tFEWER\tNODES NOW\tWITH GSHARE")
	for _, r := range c.Rows {
		c.writeRow(t, rowName(r), r)
	}
	if len(c.Rows) > 1 {
		c.writeRow(t, "total", c.Total)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, what := range c.Unknown {
		output.Fprintln(out, "* not understood, so there is no percentage:", what)
	}
	for _, note := range c.Notes {
		output.Fprintln(out, "*", note)
	}
	for _, pod := range c.Total.Unplaced {
		output.Fprintf(out, "* does not fit, counted with the GPUs that it holds now: %s: %s\n", pod, c.Total.Reasons[pod])
	}
	return nil
}

// writeRow writes the table row of a node pool, or of the total.
func (c *comparison) writeRow(t io.Writer, name string, r whatif.Row) {
	fewer := fmt.Sprintf("%.0f%%", math.Round(r.SavedPercent())+0) // -0 would be printed as such
	if len(c.Unknown) > 0 {
		fewer = "unknown"
	}
	output.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%s\t%d\t%d\n", name, r.Pods, r.Nodes, r.GPUs,
		r.HeldGPUs, r.NeededGPUs, fewer, r.HeldNodes, r.NeededNodes)
}

// maxPools is the largest number of node pools in the chart, which draws those that use the most GPUs.
const maxPools = 4

// chart returns two bars for each node pool: the GPUs in use today, and those needed with gshare.
func (c *comparison) chart() *chart.Chart {
	picture := &chart.Chart{Title: "GPUs held by pods now, and with gshare", Y: "GPUs"}
	if len(c.Unknown) > 0 {
		picture.Title += " (incomplete: not all was understood)"
	}
	rows := slices.Clone(c.Rows)
	slices.SortStableFunc(rows, func(a, b whatif.Row) int { return cmp.Compare(b.HeldGPUs, a.HeldGPUs) })
	for _, r := range rows[:min(len(rows), maxPools)] {
		picture.Bars = append(picture.Bars, bars(r.Pool+"\n"+strings.TrimPrefix(r.Model, "NVIDIA-"), r)...)
	}
	if len(rows) > 1 {
		picture.Bars = append(picture.Bars, bars("total", c.Total)...)
	}
	return picture
}

func bars(name string, r whatif.Row) []chart.Bar {
	return []chart.Bar{{Name: "now\n" + name, Value: float64(r.HeldGPUs)}, {Name: "gshare", Value: float64(r.NeededGPUs)}}
}
