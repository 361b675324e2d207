package packing

import "github.com/gshare-dev/gshare/vgpu/share"

// MilliCPU is a thousandth of a CPU core.
type MilliCPU int64

// Node is the slices of one node with their loads, and the CPU and memory that are free on it. A Node that others may read is not
// modified; Take is called on a clone.
type Node struct {
	Name   string
	Slices []Slice
	Loads  []Load // one for each slice
	CPU    MilliCPU
	RAM    share.Bytes
}

// NewNode returns a node with empty slices.
func NewNode(name string, slices []Slice, cpu MilliCPU, ram share.Bytes) *Node {
	return &Node{Name: name, Slices: slices, Loads: make([]Load, len(slices)), CPU: cpu, RAM: ram}
}

// Pod is a pod to be placed: its tenant, what it requests of the GPUs, and its requests of CPU and memory.
type Pod struct {
	Tenant  string
	Request share.Request
	Recent  Series // its load where that is known, as of an instance like it
	CPU     MilliCPU
	RAM     share.Bytes
}

// Pick is the slice that serves one vGPU, by its index on the node, and the isolation class of the vGPU.
type Pick struct {
	Slice int
	Class share.Isolation
}

// Plan holds a pick for every vGPU, a row for each container of the request.
type Plan [][]Pick

// Clone returns a copy whose loads can be changed without changing the original.
func (n *Node) Clone() *Node {
	c := *n
	c.Loads = make([]Load, len(n.Loads))
	for i := range n.Loads {
		c.Loads[i] = n.Loads[i].clone()
	}
	return &c
}

// Take adds the pod to the loads of the planned slices. It does not change CPU and RAM, which the caller keeps.
func (n *Node) Take(m Model, pod *Pod, plan Plan) {
	for c, picks := range plan {
		for _, p := range picks {
			n.Loads[p.Slice].Add(Resident{
				Tenant: pod.Tenant, Model: m, Class: p.Class, Share: pod.Request.Containers[c].Share, Use: pod.use(),
			})
		}
	}
}

// SliceIndex returns the index of the slice with an ID, and whether there is one.
func (n *Node) SliceIndex(id SliceID) (int, bool) {
	for i := range n.Slices {
		if n.Slices[i].ID == id {
			return i, true
		}
	}
	return 0, false
}

// free returns the SM-time of a slice that pods can still request. A slice that is unhealthy or blocked has none.
func (n *Node) freeSMTime(i int) MilliGPU {
	if !n.Slices[i].Healthy || n.isBlocked(i) {
		return 0
	}
	return n.Loads[i].freeSMTime()
}

// mostFree returns the largest unrequested SM-time of any slice.
func (n *Node) mostFree() share.Area {
	var most share.Area
	for i := range n.Loads {
		most = max(most, share.WholeArea-n.Loads[i].requested)
	}
	return most
}

// fresh reports whether the node has whole GPUs only and holds no share.
func (n *Node) isUnused() bool {
	for i := range n.Slices {
		if !n.Loads[i].Empty() || n.Slices[i].Profile != "" {
			return false
		}
	}
	return true
}

// equalHardware reports whether two nodes without shares differ in their names only.
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
