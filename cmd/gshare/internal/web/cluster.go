package web

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
	"github.com/gshare-dev/gshare/vgpu/kube"
)

// cacheTTL is how long the nodes and pods read from a cluster are reused: all viewers of the page together cause at most one read in this
// time.
const cacheTTL = 2 * time.Second

// clusterCache reads and caches the nodes with GPUs when the page is requested. It does not watch them, so that the API server has no load
// while nobody views the page.
type clusterCache struct {
	client kubernetes.Interface

	mu    sync.Mutex // guards what follows
	at    time.Time
	nodes []node
}

// read returns the nodes with GPUs, sorted by name. The caller must not change them.
func (c *clusterCache) read(ctx context.Context) ([]node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) < cacheTTL {
		return c.nodes, nil
	}
	nodes, err := listNodes(ctx, c.client)
	if err != nil {
		return nil, err
	}
	c.nodes, c.at = nodes, time.Now()
	return nodes, nil
}

// listNodes returns the nodes with GPUs, sorted by name, as the API server has them in its cache (resource version 0), without a read from etcd.
func listNodes(ctx context.Context, client kubernetes.Interface) (out []node, err error) {
	cached := metav1.ListOptions{ResourceVersion: "0"}
	nodes, err := client.CoreV1().Nodes().List(ctx, cached)
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, cached)
	if err != nil {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	podsOn := activePods(pods.Items)
	for i := range nodes.Items {
		n := &nodes.Items[i]
		var drawn []gpumap.Slice
		for _, s := range mapping.Of(n, podsOn[n.Name]) {
			drawn = append(drawn, s.Slice)
		}
		if len(drawn) > 0 {
			out = append(out, node{n.Name, drawn})
		}
	}
	slices.SortFunc(out, func(a, b node) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// activePods returns the pods that are bound and have not terminated, grouped by node name.
func activePods(pods []v1.Pod) map[string][]*v1.Pod {
	podsOn := map[string][]*v1.Pod{}
	for i := range pods {
		if pod := &pods[i]; pod.Spec.NodeName != "" && !kube.Ended(pod) {
			podsOn[pod.Spec.NodeName] = append(podsOn[pod.Spec.NodeName], pod)
		}
	}
	return podsOn
}
