package cluster

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"
)

// Nodes returns all nodes of the cluster.
func Nodes(ctx context.Context, client kubernetes.Interface) ([]*v1.Node, error) {
	return listAll[*v1.Node](ctx, "nodes", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().Nodes().List(ctx, o)
	})
}

// Pods returns the pods of all namespaces, as the nodes are shared by all.
func Pods(ctx context.Context, client kubernetes.Interface) ([]*v1.Pod, error) {
	return listAll[*v1.Pod](ctx, "pods", func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, o)
	})
}

// listAll lists all objects of a type page by page, so that no single response of the API server is large.
func listAll[T any](ctx context.Context, what string, page pager.ListPageFunc) (all []T, err error) {
	err = pager.New(page).EachListItem(ctx, metav1.ListOptions{}, func(o runtime.Object) error {
		all = append(all, any(o).(T))
		return nil
	})
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("list %s: %w (it takes the verb list on nodes and on pods of all namespaces, nothing else)", what, err)
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", what, err)
	}
	return all, nil
}
