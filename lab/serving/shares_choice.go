package serving

import (
	"time"

	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// idle returns the instance to run the next batch: one that has its SMs to itself before one that has not, and one that the
// scaler counts on before one that it gave up (FF-61, FF-62).
func (p *pool) idle() *instance {
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

// canWait reports whether an instance with reserved SMs will be free soon enough for all that wait and will have come by then. The
// others are not used then (FF-61): that would take SMs that are not paid for, for smaller batches.
func (p *pool) canWait() bool {
	now := p.world.clock.now
	for _, i := range p.instances {
		if i.residency != scaling.Hot || i.batch == nil || i.leaving {
			continue
		}
		end := i.end()
		batch := len(p.waiting) + int(p.rate*(end-now).Seconds()) + 1
		if batch <= i.most && end+p.surface.at(batch, i.configuration.Share.SMRequest) <= p.world.record.deadline(p.waiting[0]) {
			return true
		}
	}
	return false
}

// end returns when its batch will end, as things are.
func (i *instance) end() time.Duration {
	return i.gpu.since + time.Duration((1-i.done)*float64(i.takes))
}

// target returns how long a batch may take. Who knows the deadlines hurries for the sake of the head.
func (p *pool) target(batch []int32) time.Duration {
	if !p.world.policy.urgent {
		return p.bound()
	}
	left := p.world.record.deadline(batch[0]) - p.world.clock.now
	return max(1, min(p.bound(), left))
}
