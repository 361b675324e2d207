package controller

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/vgpu/kube"
	"github.com/gshare-dev/gshare/vgpu/kube/nodeview"
	"github.com/gshare-dev/gshare/vgpu/packing"
)

// nodePods has the pods of nodes, at most nodePodsKept old: however many replicas wait for MIG instances, each node's pods are listed once in that time.
type nodePods struct {
	live client.Reader // the API server, as the cache lacks pods of others

	mu    sync.Mutex // held while the API server is asked
	since time.Time
	known map[string][]*v1.Pod // by node; not to be changed
}

// nodePodsKept is how long a list of the pods of a node is taken to be current.
const nodePodsKept = time.Second

// on returns a function that lists the pods bound to a node.
func (n *nodePods) on(ctx context.Context) func(node string) ([]*v1.Pod, error) {
	return func(node string) ([]*v1.Pod, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if time.Since(n.since) >= nodePodsKept {
			n.since, n.known = time.Now(), map[string][]*v1.Pod{}
		}
		if pods, is := n.known[node]; is {
			return pods, nil
		}
		pods, err := podsOn(ctx, n.live)(node)
		if err == nil {
			n.known[node] = pods
		}
		return pods, err
	}
}

// fragments are the MIG instances of one node on which a function can run: all of them, and those without shares.
type fragments struct {
	all, free []pipeline.Slice
}

// fragments returns, for each node, the MIG instances on which parts of a function were measured, and their kinds. All instances of a profile are
// taken to have the memory of the smallest one.
func (c cutter) fragments(ctx context.Context, function pipeline.Function) (nodes []fragments, kinds []pipeline.Kind, err error) {
	list := &v1.NodeList{}
	if err := c.nodes.List(ctx, list); err != nil {
		return nil, nil, err
	}
	measured := func(s packing.Slice) bool {
		return s.Profile != "" && s.Healthy && slices.ContainsFunc(function.Nodes, func(n pipeline.Node) bool { return n.Times[s.Profile] > 0 })
	}
	var states []*packing.Node
	byProfile := map[string]pipeline.Kind{}
	pods := c.pods.on(ctx)
	for at := range list.Items {
		inventory, present, err := kube.InventoryOf(&list.Items[at])
		if err != nil || !present || list.Items[at].Spec.Unschedulable || !slices.ContainsFunc(nodeview.Slices(inventory), measured) {
			continue // if the inventory is invalid, the scheduler reports it
		}
		here, err := pods(list.Items[at].Name)
		if err != nil {
			return nil, nil, err
		}
		n := loadedNode(&list.Items[at], inventory, here)
		states = append(states, n)
		for _, s := range n.Slices {
			if k, known := byProfile[s.Profile]; measured(s) && (!known || s.Memory < k.Memory) {
				compute, _ := strconv.Atoi(s.Profile[:1]) // inventories have profiles such as 3g.40gb
				byProfile[s.Profile] = pipeline.Kind{Name: s.Profile, Compute: compute, Memory: s.Memory}
			}
		}
	}
	for _, n := range states {
		var f fragments
		for i, s := range n.Slices {
			if !measured(s) {
				continue
			}
			one := pipeline.Slice{ID: n.Name + "/" + string(s.ID), Kind: byProfile[s.Profile]} // simulated devices of several nodes may have the same UUIDs
			f.all = append(f.all, one)
			if n.Loads[i].Empty() && !isCovered(n, i) {
				f.free = append(f.free, one)
			}
		}
		nodes = append(nodes, f)
	}
	for _, k := range byProfile {
		kinds = append(kinds, k)
	}
	slices.SortFunc(kinds, pipeline.Kind.Compare)
	return nodes, kinds, nil
}

// loadedNode returns a node with the shares of its pods. If these cannot be determined, all slices are taken as unhealthy, as the scheduler does.
func loadedNode(node *v1.Node, inventory kube.Inventory, pods []*v1.Pod) *packing.Node {
	state := nodeview.OccupancyBuilder{
		Node:       packing.NewNode(node.Name, nodeview.Slices(inventory), 0, 0),
		Packer:     packing.Packer{Rules: packing.NewRules(packing.Slots), Ranker: unranked{}},
		PodRequest: nodeview.PodRequestOf,
	}
	for _, pod := range pods {
		if !kube.Ended(pod) {
			state.AddPod(pod)
		}
	}
	if state.Build() != nil {
		for i := range state.Node.Slices {
			state.Node.Slices[i].Healthy = false
		}
	}
	return state.Node
}

// isCovered reports whether there is no room for an instance that is made on demand because an instance that overlaps it has shares.
func isCovered(n *packing.Node, i int) bool {
	s := &n.Slices[i]
	for j := range n.Slices {
		o := &n.Slices[j]
		if j != i && o.Device == s.Device && o.MemorySlices&s.MemorySlices != 0 && !n.Loads[j].Empty() {
			return true
		}
	}
	return false
}
