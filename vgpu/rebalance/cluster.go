// Package rebalance decides which pods to move to other GPUs, either to free whole GPUs or to make room for a pod that is waiting. It tries
// moves on a copy of the cluster, by the rules by which the scheduler admits pods, and undoes moves that lead nowhere.
//
// A plan is a sequence: each move is possible once all moves before it are done. A pod is moved only if it has another place, at most once,
// and never against a disruption budget.
package rebalance

import (
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Cluster is the state from which pods are moved. This package does not change it.
type Cluster struct {
	Nodes   []*packing.Node // as they would be without the listed pods
	Pods    []Pod           // pods that hold GPUs; the shares of pods that are not listed count as part of Nodes
	Budgets []int           // how many more evictions each disruption budget allows
	Packer  packing.Packer

	// Eligible reports whether a pod may run on a node, regardless of what runs there already. If it is nil, every pod may run on every
	// node.
	Eligible func(p *Pod, node int) bool
}

// Pod is a running pod, or the waiting pod that Admit makes room for.
type Pod struct {
	packing.Pod
	Name    string
	Node    int          // index of the node on which it runs
	Plan    packing.Plan // slices of that node that it holds
	Movable bool         // its user has agreed to moves, and its owner replaces evicted pods
	Twice   bool         // its owner can create the replacement before the pod is evicted
	Budgets []int        // indices of the disruption budgets that apply to it
}

// Limits bound a plan.
type Limits struct {
	Moves     int // in the whole plan
	PerDevice int // to free one device; 0: DefaultPerDevice
	Devices   int // to free; 0: as many as the moves allow
}

// DefaultPerDevice is the default of Limits.PerDevice: at most one move for each tenth of the freed GPU.
const DefaultPerDevice = 10

// Move moves one pod to other slices. If First is set, the replacement is placed before the pod is evicted, otherwise after.
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

// Plan lists the moves to make and the devices that they free.
type Plan struct {
	Moves []Move
	Freed []Device // devices that hold a share now, and none after the moves
	Node  int      // index of the node on which Admit's waiting pod then fits
}

// Reluctance ranks how reluctantly a pod is moved: 0 for pods that are both best effort and elastic, 1 for pods that are one of the two,
// and 2 for all others. Pods with less reluctance are moved first.
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

// fits reports whether a node has enough free CPU and memory for the pod.
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
