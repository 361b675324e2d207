package events

import (
	"fmt"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing"
)

// start places all of the instance or nothing (D4), and reports whether it did.
func (c *cluster) start(in Instance) bool {
	c.learn()
	if in.GPUs > 1 {
		c.gang = in.Name
	}
	ok := c.placeAll(in)
	c.gang = ""
	c.running[in.Name] = in
	c.asked.add(in, 1)
	if !ok {
		c.stop(in.Name)
		return false
	}
	if in.GPUs > 1 {
		c.reopen(in.Name)
	}
	return true
}

// reopen opens the GPUs that were closed while the gang was placed.
func (c *cluster) reopen(gang string) {
	for _, i := range c.where[gang] {
		c.rebuild(i)
	}
}

func (c *cluster) placeAll(in Instance) bool {
	for _, pod := range c.policy.pods(in) {
		b, ok := c.choose(pod)
		if c.policy.cuts && in.LLM && in.GPUs == 1 && (!ok || c.startsGPU(b)) {
			if stages, found := c.cut(in, !ok); found {
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

// choose returns the best node for one pod, and its GPUs there.
func (c *cluster) choose(pod *packing.Pod) (booking, bool) {
	if c.policy.inOrder {
		return c.first(pod)
	}
	want := pod.Request.Containers[0]
	best := c.fleet.Best(fmt.Sprint(want.VGPUs, want.Share.SMRequest, want.Share.SMLimit, want.Share.Memory), pod, 1, nil)
	if len(best) == 0 {
		return booking{}, false
	}
	return c.on(best[0].Node, pod)
}

func (c *cluster) first(pod *packing.Pod) (booking, bool) {
	for i := range c.booked {
		if b, ok := c.on(i, pod); ok {
			return b, true
		}
	}
	return booking{}, false
}

func (c *cluster) on(node int, pod *packing.Pod) (booking, bool) {
	plan, _, refusal := c.packer.Place(c.fleet.Node(node), pod)
	return booking{node: node, pod: pod, plan: plan}, refusal == packing.Admitted
}

func (c *cluster) startsGPU(b booking) bool {
	loads := c.fleet.Node(b.node).Loads
	return slices.ContainsFunc(b.plan[0], func(p packing.Pick) bool { return loads[p.Slice].Empty() })
}
