package packing

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// MilliCPU is a thousandth of a CPU core.
type MilliCPU int64

// Node holds the slices of one node with the shares on them, and the CPU and memory that are free. A Node that other goroutines may read is
// never modified: changes are made to a clone.
type Node struct {
	Name   string
	Slices []Slice
	Loads  []Load // one for each slice
	CPU    MilliCPU
	RAM    share.Bytes
}

// NewNode returns a node whose slices hold no shares.
func NewNode(name string, slices []Slice, cpu MilliCPU, ram share.Bytes) *Node {
	return &Node{Name: name, Slices: slices, Loads: make([]Load, len(slices)), CPU: cpu, RAM: ram}
}

// Pod is a pod to be placed: its namespace, what it requests of the GPUs, and its requests of CPU and memory.
type Pod struct {
	Tenant  string
	Request share.Request
	CPU     MilliCPU
	RAM     share.Bytes
}

// Pick is the slice chosen for one vGPU, by its index on the node, and the isolation class under which the vGPU runs.
type Pick struct {
	Slice int
	Class share.Isolation
}

// Plan is a placement of a whole pod: a row for each container of the request with a Pick for each of its vGPUs.
type Plan [][]Pick

// Clone returns a copy. Placing shares on it does not change the original.
func (n *Node) Clone() *Node {
	c := *n
	c.Loads = make([]Load, len(n.Loads))
	for i := range n.Loads {
		c.Loads[i] = n.Loads[i].clone()
	}
	return &c
}

// Take adds the pod's shares to the slices of the plan. It does not change CPU and RAM, which the caller updates.
func (n *Node) Take(m Model, pod *Pod, plan Plan) {
	for c, picks := range plan {
		for _, p := range picks {
			n.Loads[p.Slice].Add(Resident{
				Tenant: pod.Tenant, Model: m, Class: p.Class, Share: pod.Request.Containers[c].Share, Use: pod.use(),
				Weights: pod.Request.Weights, AntiAffinity: pod.Request.AntiAffinity,
			})
		}
	}
}

// SliceIndex returns the index of the slice with the given ID, and whether there is one.
func (n *Node) SliceIndex(id SliceID) (int, bool) {
	for i := range n.Slices {
		if n.Slices[i].ID == id {
			return i, true
		}
	}
	return 0, false
}

// freeSMTime returns the SM-time of a slice that pods can still request. It is zero if the slice is unhealthy or cannot be created because
// of another MIG instance.
func (n *Node) freeSMTime(i int) MilliGPU {
	if !n.Slices[i].Healthy || n.isBlocked(i) {
		return 0
	}
	return n.Loads[i].freeSMTime()
}

// largestRequest returns the largest SM-time that a pod can still request of a slice. That is what is free, but never all of a slice that
// holds shares, even if those request no SM-time: a pod that requests a whole slice gets it alone.
func (n *Node) largestRequest(i int) MilliGPU {
	if n.Loads[i].Empty() {
		return n.freeSMTime(i)
	}
	return min(n.freeSMTime(i), WholeGPU-1)
}

// Equals reports whether two nodes have the same name, slices, CPU and memory, and the same shares in the same order. No pod can tell them
// apart.
func (n *Node) Equals(o *Node) bool {
	return n.Name == o.Name && n.CPU == o.CPU && n.RAM == o.RAM && slices.EqualFunc(n.Slices, o.Slices, Slice.equals) &&
		slices.EqualFunc(n.Loads, o.Loads, func(a, b Load) bool { return slices.EqualFunc(a.residents, b.residents, Resident.equals) })
}

// mostFree returns the largest free SM-time of any slice of the node.
func (n *Node) mostFree() share.Area {
	var most share.Area
	for i := range n.Loads {
		most = max(most, share.WholeArea-n.Loads[i].requested)
	}
	return most
}

// isUnused reports whether the node has whole GPUs only, no MIG instances, and none of them holds a share.
func (n *Node) isUnused() bool {
	for i := range n.Slices {
		if !n.Loads[i].Empty() || n.Slices[i].Profile != "" {
			return false
		}
	}
	return true
}

// hasHardwareOf reports whether two nodes without shares are equal apart from their names and the IDs of their slices.
func (n *Node) hasHardwareOf(o *Node) bool {
	if n.CPU != o.CPU || n.RAM != o.RAM || len(n.Slices) != len(o.Slices) {
		return false
	}
	for i := range n.Slices {
		if !n.Slices[i].equalsExceptID(&o.Slices[i]) {
			return false
		}
	}
	return true
}
