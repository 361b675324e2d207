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

const explainLong = `Explain where a pod with GPU shares is placed, or why it is pending.

For a placed pod it shows each slice and the shares beside it. For a pending pod it shows why each node and slice does not fit, and the
smallest changes that would make the pod fit: less memory, fewer SMs, less time, another GPU model, class or kind of slice, or
the end of another pod. It applies the scheduler's rules to the current nodes and pods and changes nothing.

It needs permission to list nodes and pods. With permission to list ConfigMaps in gshare-system it uses the scheduler's configuration,
otherwise the default one. It does not evaluate conditions that depend on other pods (pod affinity, topology spread, volumes, ports)
but shows the scheduler's last message about them.`

func explainCommand() *cobra.Command {
	var flags cluster.Flags
	var format output.Format
	var namespace string
	cmd := &cobra.Command{
		Use: "explain POD", Short: "Explain where a pod is placed, or why it is pending", Long: explainLong,
		Example: "  gshare explain train-0 -n ml\n  gshare explain ml/train-0 -o json",
		Args:    cli.Exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.Connect()
			if err != nil {
				return cli.Usage(err)
			}
			report, snapshot, err := explainPod(cmd.Context(), c, parsePodName(args[0], effectiveNamespace(namespace, c)))
			if err != nil {
				return err
			}
			return format.Write(cmd.OutOrStdout(), report, func(w io.Writer) error { return writeReport(w, report, snapshot) })
		},
	}
	cmd.ValidArgsFunction = completeFromCluster(&flags, podsWithShares(&namespace))
	flags.AddTo(cmd)
	cmd.Flags().StringVarP(&namespace, "namespace", "n", "", "namespace of the pod (default: the namespace of the context)")
	format.AddTo(cmd)
	return cmd
}

// parsePodName parses an argument of the form POD or NAMESPACE/POD.
func parsePodName(arg, namespace string) types.NamespacedName {
	if before, after, ok := strings.Cut(arg, "/"); ok {
		namespace, arg = before, after
	}
	return types.NamespacedName{Namespace: namespace, Name: arg}
}

// explainPod reads the cluster and returns the report on the pod, with the snapshot of nodes and pods that the report is based on.
func explainPod(ctx context.Context, c *cluster.Connection, name types.NamespacedName) (*verdict.Report, *cluster.Snapshot, error) {
	snapshot, err := cluster.Read(ctx, c.Client)
	if err != nil {
		return nil, nil, err
	}
	pod, ok := snapshot.Pod(name)
	if !ok {
		return nil, nil, fmt.Errorf("pod %s not found; set its namespace with --namespace", name)
	}
	return verdict.Explain(snapshot, pod), snapshot, nil
}
