package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/cmd/gshare/internal/verdict"
	"github.com/gshare-dev/gshare/cmd/internal/cli"
	"github.com/gshare-dev/gshare/cmd/internal/output"
)

const explainLong = `explain says where a pod's shares are and who is beside them. For a pod that waits it says for each node and slice why not,
and which smallest change of the pod would let it in: less memory, fewer SMs, less time, another model, class or kind of slice, or
another pod that ends. It runs the scheduler's own rules on what the API server shows now, and changes nothing.

It needs permission to list nodes and pods. With permission to list ConfigMaps in gshare-system it reads how the scheduler is
configured; without, it takes the defaults and says so. Conditions of Kubernetes that depend on other pods (affinity between pods,
topology spread, volumes, ports) are the scheduler's alone; what it said last is shown.`

func explainCommand() *cobra.Command {
	var flags cluster.Flags
	var format output.Format
	var namespace string
	cmd := &cobra.Command{
		Use: "explain POD", Short: "Say why a pod is where it is, or why it is nowhere and what would change that", Long: explainLong,
		Example: "  gshare explain train-0 -n ml\n  gshare explain ml/train-0 -o json",
		Args:    cli.Exactly(1, "the name of a pod"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.Connect()
			if err != nil {
				return cli.Usage(err)
			}
			report, snapshot, err := explainPod(cmd.Context(), c, podName(args[0], inNamespace(namespace, c)))
			if err != nil {
				return err
			}
			return format.Write(cmd.OutOrStdout(), report, func(w io.Writer) error { return writeReport(w, report, snapshot) })
		},
	}
	cmd.ValidArgsFunction = complete(&flags, podsThatAsk(&namespace))
	flags.AddTo(cmd)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace of the pod (default: that of the context)")
	format.AddTo(cmd)
	return cmd
}

// podName reads POD or NAMESPACE/POD.
func podName(arg, namespace string) types.NamespacedName {
	if before, after, ok := strings.Cut(arg, "/"); ok {
		namespace, arg = before, after
	}
	return types.NamespacedName{Namespace: namespace, Name: arg}
}

func explainPod(ctx context.Context, c *cluster.Connection, name types.NamespacedName) (*verdict.Report, *cluster.Snapshot, error) {
	snapshot, err := cluster.Read(ctx, c.Client)
	if err != nil {
		return nil, nil, err
	}
	pod, ok := snapshot.Pod(name)
	if !ok {
		return nil, nil, fmt.Errorf("there is no pod %s; is the namespace right?", name)
	}
	return verdict.Of(snapshot, pod), snapshot, nil
}
