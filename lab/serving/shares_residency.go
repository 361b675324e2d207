package serving

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/pipeline/residency"
	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// residencyPolicy decides when an instance reserves its SMs and when an unused one is removed, as for MIG slices in FluidFaaS.
var residencyPolicy = residency.Policy{Window: useWindow}

// useWindow is the time over which the utilisation of an instance is averaged.
const useWindow = 30 * time.Second

// updateResidency changes the residency of the function's instances according to their utilisation: whether they reserve SMs, and whether
// they are removed. At most one instance is Shared.
func (p *sharedFunction) updateResidency() {
	now := p.sim.clock.now
	for _, i := range slices.Clone(p.instances) {
		if i.leaving || !i.ready {
			continue
		}
		switch next := residencyPolicy.Next(now, i.standing()); {
		case next == i.residency, next == scaling.Hot && (!i.deployed || !p.sim.canReserveSMs(i)), next == scaling.Cold && i.deployed:
		case next == scaling.Cold:
			p.remove(i)
		case next == scaling.Hot, p.sharedInstance() == nil:
			i.reside(next)
		}
	}
	p.warm = slices.DeleteFunc(p.warm, func(s warmInstance) bool {
		return residencyPolicy.Next(now, residency.InstanceState{Residency: scaling.Warm, Since: s.since, LastRequest: s.since}) == scaling.Cold
	})
}

func (i *instance) standing() residency.InstanceState {
	return residency.InstanceState{
		Residency: i.residency, Since: i.since, LastRequest: i.lastUsed, Busy: i.batch != nil,
		Utilisation: i.use.Utilisation(i.gpu.clock.now, useWindow),
	}
}

func (i *instance) reside(r scaling.Residency) {
	i.gpu.meterUsage()
	i.residency, i.since = r, i.gpu.clock.now
	i.function.sim.changed = true
	i.gpu.divideSMs()
}

// sharedInstance returns the instance of the function that reserves no SMs, or nil.
func (p *sharedFunction) sharedInstance() *instance {
	for _, i := range p.instances {
		if i.residency == scaling.Shared && !i.leaving {
			return i
		}
	}
	return nil
}

// retiredInstance returns an instance that is loaded but not counted as deployed by the autoscaler, or nil.
func (p *sharedFunction) retiredInstance() *instance {
	for _, i := range p.instances {
		if !i.deployed && !i.leaving {
			return i
		}
	}
	return nil
}
