package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gshare-dev/gshare/cmd/internal/gpumap"
	"github.com/gshare-dev/gshare/cmd/internal/mapping"
)

// fresh is how long a reading is shown: however many look, the API server is asked once in this time.
const fresh = 2 * time.Second

// cluster reads the slices when somebody looks, and keeps nothing up while nobody does.
type cluster struct {
	client kubernetes.Interface

	mu    sync.Mutex
	at    time.Time
	nodes []node
}

// read gives the nodes with GPUs in the order of their names. They are not changed afterwards.
func (c *cluster) read(ctx context.Context) ([]node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < fresh {
		return c.nodes, nil
	}
	nodes, err := list(ctx, c.client)
	if err != nil {
		return nil, err
	}
	c.nodes, c.at = nodes, time.Now()
	return nodes, nil
}

// list asks the API server's cache, which costs it no read of its store.
func list(ctx context.Context, client kubernetes.Interface) (out []node, err error) {
	cached := metav1.ListOptions{ResourceVersion: "0"}
	nodes, err := client.CoreV1().Nodes().List(ctx, cached)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, cached)
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	on := running(pods.Items)
	for i := range nodes.Items {
		n := &nodes.Items[i]
		var drawn []gpumap.Slice
		for _, s := range mapping.Of(n, on[n.Name]) {
			drawn = append(drawn, s.Slice)
		}
		if len(drawn) > 0 {
			out = append(out, node{n.Name, drawn})
		}
	}
	slices.SortFunc(out, func(a, b node) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// running are the pods by their node that have not ended.
func running(pods []v1.Pod) map[string][]*v1.Pod {
	on := map[string][]*v1.Pod{}
	for i := range pods {
		pod := &pods[i]
		if pod.Spec.NodeName != "" && pod.Status.Phase != v1.PodSucceeded && pod.Status.Phase != v1.PodFailed {
			on[pod.Spec.NodeName] = append(on[pod.Spec.NodeName], pod)
		}
	}
	return on
}
