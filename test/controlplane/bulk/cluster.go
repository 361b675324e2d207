// Package bulk creates many simulated nodes and pods in a control plane, and tracks when the pods are bound or refused.
package bulk

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"golang.org/x/sync/errgroup"
)

// maxWriters is the number of concurrent requests; more would only queue in the API server.
const maxWriters = 16

// NewClient returns a Kubernetes client for many requests: with protobuf, and without a rate limit.
func NewClient(config *rest.Config) (kubernetes.Interface, error) {
	c := rest.CopyConfig(config)
	c.ContentType, c.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	c.QPS = -1
	return kubernetes.NewForConfig(c)
}

// CreateNodes creates the nodes concurrently, and calls done after each.
func CreateNodes(ctx context.Context, c kubernetes.Interface, nodes []*v1.Node, done func()) error {
	return forEach(ctx, len(nodes), func(ctx context.Context, i int) error {
		if _, err := c.CoreV1().Nodes().Create(ctx, nodes[i], metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create node %s: %w", nodes[i].Name, err)
		}
		done()
		return nil
	})
}

// CreatePods creates the pods concurrently, roughly in the given order.
func CreatePods(ctx context.Context, c kubernetes.Interface, pods []*v1.Pod) error {
	return forEach(ctx, len(pods), func(ctx context.Context, i int) error {
		if _, err := c.CoreV1().Pods(pods[i].Namespace).Create(ctx, pods[i], metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create pod %s: %w", pods[i].Name, err)
		}
		return nil
	})
}

// forEach calls do for 0 to n-1, several at a time, until one call fails.
func forEach(ctx context.Context, n int, do func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	next := make(chan int)
	group.Go(func() error {
		defer close(next)
		for i := range n {
			select {
			case next <- i:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
	for range maxWriters {
		group.Go(func() error {
			for i := range next {
				if err := do(ctx, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// ListObjects returns all nodes and pods of the API server.
func ListObjects(ctx context.Context, c kubernetes.Interface) ([]v1.Node, []v1.Pod, error) {
	nodes, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("list nodes: %w", err)
	}
	pods, err := c.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("list pods: %w", err)
	}
	return nodes.Items, pods.Items, nil
}

// DeletePods deletes all pods of the default namespace at once, and blocks until the tracker sees that they are gone.
func DeletePods(ctx context.Context, c kubernetes.Interface, t *Tracker) error {
	err := c.CoreV1().Pods(metav1.NamespaceDefault).DeleteCollection(ctx,
		metav1.DeleteOptions{GracePeriodSeconds: new(int64)}, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("delete pods: %w", err)
	}
	return t.Wait(ctx, func(s Progress) bool { return s.Seen == 0 })
}
