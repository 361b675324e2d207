// Package whatif packs the GPU pods that run in a cluster once more, by the rules of gshare's scheduler, and counts the GPUs
// and nodes that would then be needed. Pods stay in their pool: what else ties them to it is not known here.
package whatif

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Node is a node with GPUs under gshare: empty but for the CPU and memory of its pods without GPUs.
type Node struct {
	Name   string
	Pool   string // of nodes; may be empty
	Model  string // of its GPUs
	Slices []packing.Slice
	CPU    packing.MilliCPU
	RAM    share.Bytes
}

// Pod is a pod that holds GPUs of a node today, and its request to gshare.
type Pod struct {
	packing.Pod
	Name string // with its namespace
	Node string
	Held packing.MilliGPU // what it holds of the node's GPUs today
}

// Row compares one pool of nodes with one model of GPU, before and after.
type Row struct {
	Pool  string `json:"pool"`
	Model string `json:"model"`
	Nodes int    `json:"nodes"`
	GPUs  int    `json:"gpus"`
	Pods  int    `json:"pods"`

	HeldGPUs  int `json:"heldGPUs"`  // of which a pod holds a part today
	HeldNodes int `json:"heldNodes"` // on which a pod holds a GPU today

	NeededGPUs  int `json:"neededGPUs"`  // with gshare
	NeededNodes int `json:"neededNodes"` // with gshare

	Unplaced []string `json:"unplaced,omitempty"` // pods that found no room; what they hold today counts as needed
}

// SavedPercent returns the part of the GPUs held today that gshare would free; it is negative if gshare needs more.
func (r Row) SavedPercent() float64 {
	if r.HeldGPUs == 0 {
		return 0
	}
	return 100 * float64(r.HeldGPUs-r.NeededGPUs) / float64(r.HeldGPUs)
}

// Compare returns a row for each pool and GPU model, ordered by both. The pods of a pool are placed in the order given, one by
// one, as by a scheduler that has learned their mix.
func Compare(nodes []Node, pods []Pod, rules packing.Rules) []Row {
	groups := groupsOf(nodes, pods)
	rows := make([]Row, len(groups))
	for i, g := range groups {
		rows[i] = g.row(rules)
	}
	return rows
}

// Total returns the sum of the rows.
func Total(rows []Row) Row {
	var sum Row
	for _, r := range rows {
		sum.Nodes += r.Nodes
		sum.GPUs += r.GPUs
		sum.Pods += r.Pods
		sum.HeldGPUs += r.HeldGPUs
		sum.HeldNodes += r.HeldNodes
		sum.NeededGPUs += r.NeededGPUs
		sum.NeededNodes += r.NeededNodes
		sum.Unplaced = append(sum.Unplaced, r.Unplaced...)
	}
	return sum
}

// group is the nodes of one pool and model with their pods.
type group struct {
	nodes []Node
	pods  []Pod
}

// groupsOf groups nodes and pods by pool and model; pods keep their order. A pod on an unlisted node is left out.
func groupsOf(nodes []Node, pods []Pod) []*group {
	nodes = slices.Clone(nodes)
	slices.SortFunc(nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Model, b.Model), cmp.Compare(a.Name, b.Name))
	})
	var groups []*group
	at := map[string]*group{}
	for i, n := range nodes {
		if i == 0 || n.Pool != nodes[i-1].Pool || n.Model != nodes[i-1].Model {
			groups = append(groups, &group{})
		}
		g := groups[len(groups)-1]
		g.nodes = append(g.nodes, n)
		at[n.Name] = g
	}
	for _, p := range pods {
		if g := at[p.Node]; g != nil {
			g.pods = append(g.pods, p)
		}
	}
	return groups
}

func (g *group) row(rules packing.Rules) Row {
	r := Row{Pool: g.nodes[0].Pool, Model: g.nodes[0].Model, Nodes: len(g.nodes), Pods: len(g.pods)}
	for _, n := range g.nodes {
		r.GPUs += devices(n.Slices, nil)
	}
	g.countHeld(&r)
	g.countNeeded(&r, rules)
	return r
}

// countHeld counts the GPUs held today, rounded up on each node: a GPU of which a part is held is not free.
func (g *group) countHeld(r *Row) {
	held := map[string]packing.MilliGPU{}
	for _, p := range g.pods {
		held[p.Node] += p.Held
	}
	for _, n := range g.nodes {
		gpus := ceilGPUs(held[n.Name])
		r.HeldGPUs += gpus
		if gpus > 0 {
			r.HeldNodes++
		}
	}
}

func ceilGPUs(m packing.MilliGPU) int {
	return int((m + packing.WholeGPU - 1) / packing.WholeGPU)
}

// devices returns the number of physical GPUs of the slices; with loads, only of those that hold a share.
func devices(slices []packing.Slice, loads []packing.Load) int {
	seen := map[string]bool{}
	for i, s := range slices {
		if loads == nil || !loads[i].Empty() {
			seen[s.Device] = true
		}
	}
	return len(seen)
}
