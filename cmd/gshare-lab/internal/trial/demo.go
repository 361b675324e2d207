package trial

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/gpumap"
	"github.com/gshare-dev/gshare/cmd/internal/output"
	"github.com/gshare-dev/gshare/lab/audit"
	"github.com/gshare-dev/gshare/lab/trace"
	"github.com/gshare-dev/gshare/test/controlplane/access"
	"github.com/gshare-dev/gshare/test/controlplane/bulk"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// demoOptions holds the flags of gshare-lab demo.
type demoOptions struct {
	replayOptions
	count int
	keep  bool
}

func demoCommand() *cobra.Command {
	o := demoOptions{replayOptions: replayOptions{replicate: 1}}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Place thousands of pods, many with a part of a GPU, on a mixed cluster, and draw the GPUs",
		Long: "Create a cluster with the node types of the openb production trace, place random pods with the frequencies of that trace\n" +
			"with gshare-scheduler, check every placement, and draw the GPUs. Pods with a part of a GPU request a part of its SMs and of\n" +
			"its time.",
		Example: "  gshare-lab demo\n  gshare-lab demo --profile gshare-rectangle --keep",
		Args:    cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.count, "pods", 3000, "number of pods")
	f.Uint64Var(&o.seed, "seed", 1, "random seed of the pods")
	f.StringVar(&o.profile, "profile", profiles[0], profileHelp)
	f.BoolVar(&o.keep, "keep", false, "keep the API server and the scheduler running until Ctrl-C")
	return cmd
}

func demo(ctx context.Context, o demoOptions, out io.Writer) error {
	if err := o.validate(); err != nil {
		return err
	}
	if o.count < 1 || o.count > 100_000 {
		return cli.Usage(fmt.Errorf("--pods: must be from 1 to 100000, got %d", o.count))
	}
	nodes, pods, err := trace.Sample(o.count, o.seed)
	if err != nil {
		return err
	}
	return o.play(ctx, nodes, pods, func(s *sandbox, result *replayResult) error {
		if err := s.drawGPUs(ctx, out, result); err != nil {
			return err
		}
		if o.keep {
			s.keepRunning(ctx, out)
		}
		return nil
	})
}

// drawGPUs reads the nodes and pods from the API server, draws their GPUs and prints the figures of the result.
func (s *sandbox) drawGPUs(ctx context.Context, out io.Writer, result *replayResult) error {
	nodes, pods, err := bulk.ListObjects(ctx, s.client)
	if err != nil {
		return err
	}
	slices := drawableSlices(audit.Check(nodes, pods, audit.Options{}))
	look := gpumap.Options{Width: min(s.console.Width(), 100), Color: output.Color(out), MaxRows: 40}
	fmt.Fprintln(out)
	gpumap.Overview(out, slices, look)
	for _, slice := range gpumap.Interesting(slices, 2) {
		fmt.Fprintln(out)
		gpumap.Detail(out, slice, look)
	}
	fmt.Fprintln(out)
	return result.writeTable(out)
}

// drawableSlices converts the slices of an audit report for drawing.
func drawableSlices(report audit.Report) []gpumap.Slice {
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

// keepRunning prints how to connect to the API server, and keeps the control plane running until the context is cancelled.
func (s *sandbox) keepRunning(ctx context.Context, out io.Writer) {
	fmt.Fprintf(out, "\nThe control plane is running. In another terminal:\n\n  export KUBECONFIG=%s\n  kubectl get pods -o wide\n\nCtrl-C stops and removes it.\n",
		s.Kubeconfig(access.Admin))
	<-ctx.Done()
}
