package events

import (
	"cmp"
	"slices"

	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// partitionModel divides a model that no active GPU can hold between GPUs of one node, those with the most free memory first, until it
// fits: memory worst-fit, with the fewest stages that a node allows (DI-34, D8). Each GPU is charged the whole request, as request and as
// limit (D9). Unused GPUs are included only if no GPU could hold the model alone.
func (c *cluster) partitionModel(in Instance, fresh bool) (best booking, found bool) {
	for i := range c.booked {
		if len(c.booked[i]) == 0 && !fresh {
			continue
		}
		b, ok := c.partitionOn(i, in, fresh)
		if ok && (!found || len(b.plan) < len(best.plan)) {
			best, found = b, true
		}
	}
	return best, found
}

func (c *cluster) partitionOn(node int, in Instance, fresh bool) (booking, bool) {
	request, _ := c.policy.book(in)
	part := share.Share{SMRequest: request, SMLimit: request, QuotaRequest: share.Whole, QuotaLimit: share.Whole}
	var stages []share.Container
	var plan packing.Plan
	left := in.Memory
	for _, g := range c.freeFragments(c.fleet.Node(node), part, fresh) {
		part.Memory = min(left, g.free)
		stages = append(stages, share.Container{VGPUs: 1, Share: part})
		plan = append(plan, []packing.Pick{{Slice: g.slice, Class: c.policy.isolation}})
		if left -= part.Memory; left == 0 {
			return booking{node: node, pod: c.policy.pod(stages...), plan: plan}, true
		}
	}
	return booking{}, false
}

type fragment struct {
	slice int
	free  share.Bytes
}

// freeFragments returns the GPUs of the node that admit a stage of a model, with their free memory, the largest first.
func (c *cluster) freeFragments(n *packing.Node, stage share.Share, fresh bool) []fragment {
	var out []fragment
	for i := range n.Slices {
		free := n.Slices[i].Memory - n.Loads[i].Memory()
		if free == 0 || n.Loads[i].Empty() && !fresh {
			continue
		}
		stage.Memory = free
		terms := c.policy.pod().Request.Terms
		if _, refusal := c.packer.Rules.Admit(&n.Slices[i], &n.Loads[i], packing.ShareRequest{Terms: terms, Share: stage}); refusal == packing.Admitted {
			out = append(out, fragment{slice: i, free: free})
		}
	}
	slices.SortFunc(out, func(a, b fragment) int { return cmp.Or(cmp.Compare(b.free, a.free), cmp.Compare(a.slice, b.slice)) })
	return out
}
