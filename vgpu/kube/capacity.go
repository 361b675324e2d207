package kube

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// wholeSMTime is the sm-time of one slice: 100 percent points for 100 percent of every window.
const wholeSMTime = 100 * 100

// NodeResources returns what a node with this inventory advertises. Health does not count: what is advertised must not
// shrink while pods are bound.
//
// mem and sm-time are true capacity; of a GPU whose MIG instances are made on demand, what it has in the worst case. sm and quota do not add up over shares, so they are advertised at their ceiling of
// 100 for each ticket: visible, and never in the way. vgpu is what the device plugin has to register; the agent patches
// the others into the node's status.
func NodeResources(inv Inventory) v1.ResourceList {
	var tickets, memory, slices int64
	for _, n := range Tickets(inv) {
		tickets += int64(n)
	}
	for _, least := range leastOf(withDefaults(inv.Slices)) {
		memory += least.memory
		slices += least.slices
	}
	return v1.ResourceList{
		ResourceVGPU:   count(tickets),
		ResourceMemory: count(memory),
		ResourceSMTime: count(slices * wholeSMTime),
		ResourceSM:     count(100 * tickets),
		ResourceQuota:  count(100 * tickets),
	}
}

func count(n int64) resource.Quantity { return *resource.NewQuantity(n, resource.DecimalSI) }
