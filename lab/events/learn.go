package events

import "github.com/gshare-dev/gshare/vgpu/packing"

// learner is the state of the scheduler's plugins: the mix of running pods, the free capacity, and the epoch of the ranks.
type learner struct {
	mix    packing.Mix
	total  packing.Capacity
	frozen packing.Epoch
}

func newLearner() learner {
	return learner{total: packing.Capacity{Models: map[string]packing.MilliGPU{}}}
}

// learn freezes a new demand when the cluster has changed enough, as the scheduler does.
func (c *cluster) learn() {
	if !c.policy.learns || !c.seen.frozen.Expired(&c.seen.mix, c.seen.total) {
		return
	}
	c.seen.frozen = packing.NewEpoch(&c.seen.mix, c.seen.total)
	c.packer.Ranker = c.policy.ranker(packing.NewDemand(&c.seen.mix, c.seen.total))
	c.fleet.SetPacker(c.packer)
}
