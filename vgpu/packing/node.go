package packing

import "github.com/gshare-dev/gshare/vgpu/share"

// MilliCPU is a thousandth of a CPU core.
type MilliCPU int64

// Node is the slices of one node with their loads, and the CPU and memory that its pods leave free.
// A Node that others may read is never changed; Take works on a clone.
type Node struct {
	Name   string
	Slices []Slice
	Loads  []Load // one for each slice
	CPU    MilliCPU
	RAM    share.Bytes
}

// NewNode gives a node with empty slices.
func NewNode(name string, slices []Slice, cpu MilliCPU, ram share.Bytes) *Node {
	return &Node{Name: name, Slices: slices, Loads: make([]Load, len(slices)), CPU: cpu, RAM: ram}
}

// Pod is what the packer knows of a pod: whose it is, what it asks of the GPUs, and what else it takes from its node.
type Pod struct {
	Tenant  string
	Request share.Request
	Recent  Series // its load where that is known, as of an instance like it
	CPU     MilliCPU
	RAM     share.Bytes
}

// Pick is the slice, by its index on the node, that serves one vGPU, and the class it then has.
type Pick struct {
	Slice int
	Class share.Isolation
}

// Plan is a pick for every vGPU: one row for each container of the request.
type Plan [][]Pick

// Clone copies the node so that the copy can be loaded without changing the original.
func (n *Node) Clone() *Node {
	c := *n
	c.Loads = make([]Load, len(n.Loads))
	for i := range n.Loads {
		c.Loads[i] = n.Loads[i].clone()
	}
	return &c
}

// Take adds the pod to the loads as planned. CPU and memory are the caller's: they are counted before packing is asked.
func (n *Node) Take(m Model, pod *Pod, plan Plan) {
	for c, picks := range plan {
		for _, p := range picks {
			n.Loads[p.Slice].Add(Resident{
				Tenant: pod.Tenant, Model: m, Class: p.Class, Share: pod.Request.Containers[c].Share, Use: pod.use(),
			})
		}
	}
}

// SliceIndex finds a slice by its ID.
func (n *Node) SliceIndex(id SliceID) (int, bool) {
	for i := range n.Slices {
		if n.Slices[i].ID == id {
			return i, true
		}
	}
	return 0, false
}

// free is the SM-time of a slice that pods could still use; an unhealthy slice has none.
func (n *Node) free(i int) MilliGPU {
	if !n.Slices[i].Healthy || n.shadowed(i) {
		return 0
	}
	return n.Loads[i].free()
}

// mostLeft is the SM-time not promised yet of the slice that has most of it.
func (n *Node) mostLeft() share.Area {
	var most share.Area
	for i := range n.Loads {
		most = max(most, share.WholeArea-n.Loads[i].requested)
	}
	return most
}

// fresh says that the node has whole GPUs only and holds nothing.
func (n *Node) fresh() bool {
	for i := range n.Slices {
		if !n.Loads[i].Empty() || n.Slices[i].Profile != "" {
			return false
		}
	}
	return true
}

// twinOf says that two fresh nodes differ in names only.
func (n *Node) twinOf(o *Node) bool {
	if n.CPU != o.CPU || n.RAM != o.RAM || len(n.Slices) != len(o.Slices) {
		return false
	}
	for i := range n.Slices {
		if !n.Slices[i].sameKind(&o.Slices[i]) {
			return false
		}
	}
	return true
}
