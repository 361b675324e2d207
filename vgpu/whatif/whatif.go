// Package whatif estimates how many GPUs gshare would save in a cluster. It packs the cluster's running GPU pods again, by the rules of
// gshare's scheduler, and counts the GPUs and nodes that they would then need. Pods stay in their node pool, because what else ties them to
// it is not known here.
package whatif

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Node is a node whose GPUs gshare would share. CPU and RAM are what its pods without GPUs leave free.
type Node struct {
	Name   string
	Pool   string // the node pool it belongs to; may be empty
	Model  string // of its GPUs
	Slices []packing.Slice
	CPU    packing.MilliCPU
	RAM    share.Bytes
}

// Pod is a pod that holds GPUs of a node today, with the request that it would make with gshare.
type Pod struct {
	packing.Pod
	Name string // namespace/name
	Node string
	Held packing.MilliGPU // how much of the node's GPUs it holds today
	Fits bool             // gshare accepts it where it is: it has its GPUs to itself, or a share that gshare placed
}

// Row compares, for one pool of nodes and one GPU model, the GPUs and nodes held today with those needed with gshare.
type Row struct {
	Pool  string `json:"pool"`
	Model string `json:"model"`
	Nodes int    `json:"nodes"`
	GPUs  int    `json:"gpus"`
	Pods  int    `json:"pods"`

	HeldGPUs  int `json:"heldGPUs"`  // GPUs that pods hold at least in part today
	HeldNodes int `json:"heldNodes"` // nodes on which a pod holds a GPU today

	NeededGPUs  int `json:"neededGPUs"`  // with gshare
	NeededNodes int `json:"neededNodes"` // with gshare

	Unplaced []string          `json:"unplaced,omitempty"` // pods that did not fit; what they hold today counts as needed
	Reasons  map[string]string `json:"reasons,omitempty"`  // why they did not fit, by pod
}

// SavedPercent returns the percentage of the GPUs held today that gshare would free; it is negative if gshare needs more.
func (r Row) SavedPercent() float64 {
	if r.HeldGPUs == 0 {
		return 0
	}
	return 100 * float64(r.HeldGPUs-r.NeededGPUs) / float64(r.HeldGPUs)
}

// Compare returns a row for each pool and GPU model, ordered by both. Pods are placed one by one, in the given order, as a scheduler would
// that already knows which shapes of pods its cluster runs.
func Compare(nodes []Node, pods []Pod) []Row {
	groups := groupsOf(nodes, pods)
	rows := make([]Row, len(groups))
	for i, g := range groups {
		rows[i] = g.makeRow()
	}
	return rows
}

// Total returns a row with the sums of all rows.
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
		for pod, why := range r.Reasons {
			sum.addReason(pod, why)
		}
	}
	return sum
}

func (r *Row) addReason(pod, why string) {
	if r.Reasons == nil {
		r.Reasons = map[string]string{}
	}
	r.Reasons[pod] = why
}

// group holds the nodes of one pool and GPU model, with their pods.
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

func (g *group) makeRow() Row {
	r := Row{Pool: g.nodes[0].Pool, Model: g.nodes[0].Model, Nodes: len(g.nodes), Pods: len(g.pods)}
	for _, n := range g.nodes {
		r.GPUs += countDevices(n.Slices, nil)
	}
	g.countHeld(&r)
	g.countNeeded(&r)
	g.keepFitting(&r)
	return r
}

// keepFitting takes the pods of nodes where all pods fit as they are for placed, and repacks the others only, if that needs fewer GPUs than
// to repack all: the scheduler places pods one by one, and may need more GPUs for them than they hold now.
func (g *group) keepFitting(r *Row) {
	moves := map[string]bool{} // by node
	for _, p := range g.pods {
		moves[p.Node] = moves[p.Node] || !p.Fits
	}
	parts := map[bool]*group{false: {}, true: {}}
	for _, n := range g.nodes {
		parts[moves[n.Name]].nodes = append(parts[moves[n.Name]].nodes, n)
	}
	for _, p := range g.pods {
		parts[moves[p.Node]].pods = append(parts[moves[p.Node]].pods, p)
	}
	stay, rest := parts[false], parts[true]
	var kept, other Row
	if stay.countHeld(&kept); kept.HeldGPUs == 0 {
		return
	}
	for _, n := range rest.nodes {
		other.GPUs += countDevices(n.Slices, nil)
	}
	rest.countNeeded(&other)
	if gpus := kept.HeldGPUs + other.NeededGPUs; gpus < r.NeededGPUs || gpus == r.NeededGPUs && len(other.Unplaced) < len(r.Unplaced) {
		r.NeededGPUs, r.NeededNodes = gpus, kept.HeldNodes+other.NeededNodes
		r.Unplaced, r.Reasons = other.Unplaced, other.Reasons
	}
}

// countHeld sets the GPUs and nodes held today. GPUs are rounded up per node, because a GPU that is held in part is not free. No more are
// held than the node has, whatever the pods add up to.
func (g *group) countHeld(r *Row) {
	held := map[string]packing.MilliGPU{}
	for _, p := range g.pods {
		held[p.Node] += p.Held
	}
	for _, n := range g.nodes {
		gpus := min(ceilGPUs(held[n.Name]), countDevices(n.Slices, nil))
		r.HeldGPUs += gpus
		if gpus > 0 {
			r.HeldNodes++
		}
	}
}

func ceilGPUs(m packing.MilliGPU) int {
	return int((m + packing.WholeGPU - 1) / packing.WholeGPU)
}

// countDevices returns the number of physical GPUs that the slices belong to. If loads is not nil, only GPUs that hold a share count.
func countDevices(slices []packing.Slice, loads []packing.Load) int {
	seen := map[string]bool{}
	for i, s := range slices {
		if loads == nil || !loads[i].Empty() {
			seen[s.Device] = true
		}
	}
	return len(seen)
}
