// Package rebalance decides which pods to move to other GPUs so that whole GPUs become free, or so that a pod fits that waits. It tries moves
// on a copy of the cluster, with the rules by which the scheduler admits pods, and undoes those that lead nowhere.
//
// A plan is a sequence: each move is possible when its turn comes, with all moves before it done. No pod is moved that has no other place,
// none twice, and none against a disruption budget.
package rebalance

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Cluster is the state from which to move pods. It is not changed.
type Cluster struct {
	Nodes   []*packing.Node // as they would be without the listed pods
	Pods    []Pod           // that hold GPUs; those that cannot be listed are on the nodes
	Budgets []int           // how many pods each disruption budget still lets go
	Packer  packing.Packer

	// Eligible reports whether a pod may run on a node, whatever runs there; nil: every pod on every node.
	Eligible func(p *Pod, node int) bool
}

// Pod is a pod that runs, or that waits (see Admit).
type Pod struct {
	packing.Pod
	Name    string
	Node    int          // on which it runs, by index
	Plan    packing.Plan // slices of that node
	Movable bool         // its user lets it be moved, and its owner replaces it
	Twice   bool         // its owner can have the replacement before the pod goes
	Budgets []int        // that apply to it, by index
}

// Limits bound a plan.
type Limits struct {
	Moves     int // of the plan
	PerDevice int // to free one device; 0: DefaultPerDevice
	Devices   int // to free; 0: as many as the moves allow
}

// DefaultPerDevice is at most one move for each tenth of a GPU that is freed.
const DefaultPerDevice = 10

// Move is one pod's way to other slices. If First is set, the replacement is placed before the pod is evicted, otherwise after.
type Move struct {
	Pod   int // by index
	From  int // node
	To    int // node
	Plan  packing.Plan
	First bool
}

// Device is a GPU of a node.
type Device struct {
	Node int
	ID   string // UUID
}

// Plan is what to move, and what that wins.
type Plan struct {
	Moves []Move
	Freed []Device // hold a share now, and none afterwards
	Node  int      // of Admit: where the pod that waits fits then
}

// Reluctance orders pods by how willingly they are moved: pods of best effort that are elastic, then those that are one of the two, then all
// others.
func (p *Pod) Reluctance() int {
	r := 2
	if p.Request.Priority != share.SLO {
		r--
	}
	if p.isElastic() {
		r--
	}
	return r
}

func (p *Pod) isElastic() bool {
	return p.Request.Isolation == share.Elastic ||
		slices.ContainsFunc(p.Request.Containers, func(c share.Container) bool { return c.Share.SMLimit > c.Share.SMRequest })
}

// fits reports whether a node has the CPU and the memory for the pod.
func (p *Pod) fits(n *packing.Node) bool {
	return (p.CPU == 0 || p.CPU <= n.CPU) && (p.RAM == 0 || p.RAM <= n.RAM)
}

// memory returns the GPU memory of all vGPUs of the pod.
func (p *Pod) memory() (sum share.Bytes) {
	for _, c := range p.Request.Containers {
		sum += share.Bytes(c.VGPUs) * c.Share.Memory
	}
	return sum
}

func (l Limits) perDevice() int {
	if l.PerDevice == 0 {
		return DefaultPerDevice
	}
	return l.PerDevice
}
