package events

import (
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

// start places all workers of the instance or none (D4), and reports whether it did.
func (c *cluster) start(in Instance) bool {
	c.updateDemand()
	if in.GPUs > 1 {
		c.gang = in.Name
	}
	ok := c.placeAll(in)
	c.gang = ""
	c.running[in.Name] = in
	c.requested.add(in, 1)
	if !ok {
		c.stop(in.Name)
		return false
	}
	if in.GPUs > 1 {
		c.reopenGPUs(in.Name)
	}
	return true
}

// reopenGPUs opens the GPUs of a gang that were closed to its other workers while it was placed.
func (c *cluster) reopenGPUs(gang string) {
	for _, i := range c.where[gang] {
		c.rebuildNode(i)
	}
}

func (c *cluster) placeAll(in Instance) bool {
	for _, pod := range c.policy.podsFor(in) {
		b, ok := c.place(pod)
		if c.policy.cuts && in.LLM && in.GPUs == 1 && (!ok || c.startsGPU(b)) {
			if stages, found := c.partitionModel(in, !ok); found {
				b, ok = stages, true
			}
		}
		if !ok {
			return false
		}
		c.book(in.Name, b)
	}
	return true
}

// place chooses the best node for one pod, and its GPUs there. It returns false if no node admits the pod.
func (c *cluster) place(pod *packing.Pod) (booking, bool) {
	if c.policy.inOrder {
		return c.placeInOrder(pod)
	}
	want := pod.Request.Containers[0]
	best := c.fleet.Best(fmt.Sprint(want.VGPUs, want.Share.SMRequest, want.Share.SMLimit, want.Share.Memory), pod, 1, nil)
	if len(best) == 0 {
		return booking{}, false
	}
	return c.placeOn(best[0].Node, pod)
}

func (c *cluster) placeInOrder(pod *packing.Pod) (booking, bool) {
	for i := range c.booked {
		if b, ok := c.placeOn(i, pod); ok {
			return b, true
		}
	}
	return booking{}, false
}

func (c *cluster) placeOn(node int, pod *packing.Pod) (booking, bool) {
	plan, _, refusal := c.packer.Place(c.fleet.Node(node), pod)
	return booking{node: node, pod: pod, plan: plan}, refusal == packing.Admitted
}

func (c *cluster) startsGPU(b booking) bool {
	loads := c.fleet.Node(b.node).Loads
	return slices.ContainsFunc(b.plan[0], func(p packing.Pick) bool { return loads[p.Slice].Empty() })
}
