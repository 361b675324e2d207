package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gshare-dev/gshare/cmd/gshare/internal/cluster"
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// completionTimeout bounds how long a shell waits for completions.
const completionTimeout = 3 * time.Second

// completion returns the values that shell completion proposes for a command's only argument.
type completion func(context.Context, *cluster.Connection) []string

// completeFromCluster returns a shell completion function that reads the cluster. On an error it proposes nothing, as a shell cannot show errors.
func completeFromCluster(flags *cluster.Flags, list completion) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		c, err := flags.Connect()
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		return list(ctx, c), cobra.ShellCompDirectiveNoFileComp
	}
}

// podsWithShares returns a completion that proposes the pods of a namespace that request gshare's resources.
func podsWithShares(namespace *string) completion {
	return func(ctx context.Context, c *cluster.Connection) (names []string) {
		pods, err := c.Client.CoreV1().Pods(effectiveNamespace(*namespace, c)).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil
		}
		for i := range pods.Items {
			if kube.RequestsShare(&pods.Items[i]) {
				names = append(names, pods.Items[i].Name)
			}
		}
		return names
	}
}

// nodesWithGPUs returns the names of the nodes that carry gshare's inventory annotation.
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

// effectiveNamespace returns the namespace of the flag if it is set, else that of the kubeconfig's context.
func effectiveNamespace(flag string, c *cluster.Connection) string {
	if flag != "" {
		return flag
	}
	return c.Namespace
}
