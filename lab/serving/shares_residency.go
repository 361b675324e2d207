package serving

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/pipeline/residency"
	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// residencyRules sets when an instance reserves its SMs and when an unused one ends (FF-41, FF-43, FF-44).
var residencyRules = residency.Policy{Window: useWindow}

// useWindow is the time over which utilisation is averaged.
const useWindow = 30 * time.Second

// review updates the residency of every instance by its utilisation. At most one instance of a function is Shared (FF-45).
func (p *pool) review() {
	now := p.world.clock.now
	for _, i := range slices.Clone(p.instances) {
		if i.leaving || !i.ready {
			continue
		}
		switch next := residencyRules.Next(now, i.standing()); {
		case next == i.residency, next == scaling.Hot && (!i.deployed || !p.world.canReserve(i)), next == scaling.Cold && i.deployed:
		case next == scaling.Cold:
			p.leave(i)
		case next == scaling.Hot, p.sharedInstance() == nil:
			i.reside(next)
		}
	}
	p.warm = slices.DeleteFunc(p.warm, func(s spare) bool {
		return residencyRules.Next(now, residency.Standing{Residency: scaling.Warm, Since: s.since, LastRequest: s.since}) == scaling.Cold
	})
}

func (i *instance) standing() residency.Standing {
	return residency.Standing{
		Residency: i.residency, Since: i.since, LastRequest: i.lastUsed, Busy: i.batch != nil,
		Utilisation: i.use.Utilisation(i.gpu.clock.now, useWindow),
	}
}

func (i *instance) reside(r scaling.Residency) {
	i.gpu.settle()
	i.residency, i.since = r, i.gpu.clock.now
	i.pool.world.changed = true
	i.gpu.divide()
}

// sharedInstance returns the instance of the function that reserves no SMs, or nil.
func (p *pool) sharedInstance() *instance {
	for _, i := range p.instances {
		if i.residency == scaling.Shared && !i.leaving {
			return i
		}
	}
	return nil
}

// retiredInstance returns an instance that is loaded but not deployed, or nil.
func (p *pool) retiredInstance() *instance {
	for _, i := range p.instances {
		if !i.deployed && !i.leaving {
			return i
		}
	}
	return nil
}
