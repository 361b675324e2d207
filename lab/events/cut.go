package events

import (
	"github.com/gshare-dev/gshare/vgpu/packing"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// partitionModel divides a model that no active GPU can hold between several GPUs of one node, by the packer's rule for such models. It takes the
// node with the fewest stages, and the first one among equals. Each GPU is charged the whole request, both as request and as limit (D9). Unused GPUs are
// included only if fresh is set, that is, if no GPU could hold the model alone.
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
	model := packing.ShareRequest{Terms: c.policy.pod().Request.Terms, Share: share.Share{
		SMRequest: request, SMLimit: request, QuotaRequest: share.Whole, QuotaLimit: share.Whole, Memory: in.Memory,
	}}
	n := c.fleet.Node(node)
	parts, ok := c.packer.Rules.Cut(n, model, func(slice int) bool { return fresh || !n.Loads[slice].Empty() })
	if !ok {
		return booking{}, false
	}
	var stages []share.Container
	var plan packing.Plan
	for _, p := range parts {
		model.Share.Memory = p.Memory
		stages = append(stages, share.Container{VGPUs: 1, Share: model.Share})
		plan = append(plan, []packing.Pick{p.Pick})
	}
	return booking{node: node, pod: c.policy.pod(stages...), plan: plan}, true
}
