package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// completionTime is how long a shell may be kept waiting.
const completionTime = 3 * time.Second

// completion lists what may stand as the only argument of a command.
type completion func(context.Context, *cluster.Connection) []string

// complete asks the cluster; what goes wrong is no completion, since a shell shows no errors.
func complete(flags *cluster.Flags, list completion) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		c, err := flags.Connect()
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		return list(ctx, c), cobra.ShellCompDirectiveNoFileComp
	}
}

// podsThatAsk are those of a namespace with resources of gshare.
func podsThatAsk(namespace *string) completion {
	return func(ctx context.Context, c *cluster.Connection) (names []string) {
		pods, err := c.Client.CoreV1().Pods(inNamespace(*namespace, c)).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil
		}
		for i := range pods.Items {
			if kube.Asks(&pods.Items[i]) {
				names = append(names, pods.Items[i].Name)
			}
		}
		return names
	}
}

func nodesWithGPUs(ctx context.Context, c *cluster.Connection) (names []string) {
	nodes, err := cluster.Nodes(ctx, c.Client)
	if err != nil {
		return nil
	}
	for _, n := range nodes {
		if _, has := n.Annotations[kube.AnnotationInventory]; has {
			names = append(names, n.Name)
		}
	}
	return names
}

// inNamespace is the one that a flag names, else that of the context.
func inNamespace(flag string, c *cluster.Connection) string {
	if flag != "" {
		return flag
	}
	return c.Namespace
}
