package serving

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// idleInstance returns the idle instance that should run the function's next batch, or nil. It prefers instances that reserve SMs, then
// those that the autoscaler counts as deployed.
func (p *sharedFunction) idleInstance() *instance {
	var best *instance
	for _, i := range p.instances {
		if i.ready && !i.leaving && i.batch == nil && (best == nil || i.rank() < best.rank()) {
			best = i
		}
	}
	return best
}

func (i *instance) rank() int {
	switch {
	case i.residency == scaling.Hot:
		return 0
	case i.deployed:
		return 1
	}
	return 2
}

// canWait reports whether an instance with reserved SMs will be free in time for all requests that are queued and arrive until then. If
// so, instances without reserved SMs are not used: they would run smaller batches on SMs that are not paid for.
func (p *sharedFunction) canWait() bool {
	now := p.sim.clock.now
	for _, i := range p.instances {
		if i.residency != scaling.Hot || i.batch == nil || i.leaving {
			continue
		}
		end := i.expectedEnd()
		batch := len(p.waiting) + int(p.rate*(end-now).Seconds()) + 1
		if batch <= i.most && end+p.surface.latency(batch, i.configuration.Share.SMRequest) <= p.sim.record.deadline(p.waiting[0]) {
			return true
		}
	}
	return false
}

// expectedEnd returns the time at which the running batch will end with the present number of SMs.
func (i *instance) expectedEnd() time.Duration {
	return i.gpu.since + time.Duration((1-i.done)*float64(i.takes))
}

// batchTimeLimit returns how long the given batch may take. Policies with deadlines limit it to the time that is left to its first
// request.
func (p *sharedFunction) batchTimeLimit(batch []int32) time.Duration {
	if !p.sim.policy.urgent {
		return p.maxExecution()
	}
	left := p.sim.record.deadline(batch[0]) - p.sim.clock.now
	return max(1, min(p.maxExecution(), left))
}
