package trial

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/gpumap"
	"github.com/gshare-dev/gshare/lab/audit"
	"github.com/gshare-dev/gshare/lab/trace"
	"github.com/gshare-dev/gshare/test/controlplane"
	"github.com/gshare-dev/gshare/test/controlplane/bulk"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

type demoOptions struct {
	replayOptions
	count int
	keep  bool
}

func demoCommand() *cobra.Command {
	o := demoOptions{replayOptions: replayOptions{replicate: 1, output: "table"}}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Place thousands of fractional-GPU pods on a mixed cluster and show the GPUs",
		Long: "demo draws pods by the shapes and frequencies of the openb production trace and a cluster of its node types in\n" +
			"proportion, lets the real scheduler place the pods, checks every placement and draws the GPUs. A pod that asks for\n" +
			"a part of a GPU asks for a part of the SMs and of the time.",
		Example: "  gshare-lab demo\n  gshare-lab demo --profile gshare-rectangle --keep",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.count, "pods", 3000, "how many pods to draw")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the draw")
	f.StringVar(&o.profile, "profile", profiles[0], profileHelp)
	f.BoolVar(&o.keep, "keep", false, "leave the API server and the scheduler running until Ctrl-C")
	return cmd
}

func demo(ctx context.Context, o demoOptions, out io.Writer) (err error) {
	if err := o.validate(); err != nil {
		return err
	}
	if o.count < 1 || o.count > 100_000 {
		return cli.Usage(fmt.Errorf("--pods: %d is not between 1 and 100000", o.count))
	}
	nodes, pods, err := trace.Sample(o.count, o.seed)
	if err != nil {
		return err
	}
	s, err := startSandbox(ctx, cli.NewConsole())
	if err != nil {
		return err
	}
	defer func() { err = firstError(err, s.Stop()) }()
	result, err := s.replay(ctx, o.replayOptions, nodes, pods)
	if err != nil {
		return err
	}
	if err := s.show(ctx, out, result); err != nil {
		return err
	}
	if o.keep {
		s.keep(ctx, out)
	}
	return result.verdict()
}

// show draws the GPUs as the API server has them and prints the summary.
func (s *sandbox) show(ctx context.Context, out io.Writer, result *replayResult) error {
	nodes, pods, err := bulk.Objects(ctx, s.client)
	if err != nil {
		return err
	}
	slices := drawn(audit.Check(nodes, pods, audit.Options{}))
	look := gpumap.Options{Width: min(s.console.Width(), 100), Color: colourful(out), MaxRows: 40}
	fmt.Fprintln(out)
	gpumap.Overview(out, slices, look)
	for _, slice := range gpumap.Interesting(slices, 2) {
		fmt.Fprintln(out)
		gpumap.Detail(out, slice, look)
	}
	fmt.Fprintln(out)
	return result.print(out, "table")
}

// colourful reports whether the output is a terminal and NO_COLOR is not set.
func colourful(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd())) && os.Getenv("NO_COLOR") == ""
}

// drawn puts the checker's view of the slices into the map's terms.
func drawn(report audit.Report) []gpumap.Slice {
	out := make([]gpumap.Slice, len(report.Slices))
	for i, s := range report.Slices {
		out[i] = gpumap.Slice{Node: s.Node, Index: s.Index, Model: s.Model, Rectangles: s.Packing == kube.Rectangles,
			Reserve: kube.DefaultReserve, MemoryTotal: s.Capacity}
		for _, p := range s.Shares {
			out[i].Shares = append(out[i].Shares, gpumap.Share{Pod: p.Pod, Share: p.Share})
		}
	}
	return out
}

func (s *sandbox) keep(ctx context.Context, out io.Writer) {
	fmt.Fprintf(out, "\nThe control plane is running. In another terminal:\n\n  export KUBECONFIG=%s\n  kubectl get pods -o wide\n\nCtrl-C stops and removes it.\n",
		s.Kubeconfig(controlplane.Admin))
	<-ctx.Done()
}
