package serving

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/pipeline/residency"
	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// residencyRules say when an instance reserves its SMs, and when one that nobody asked for ends (FF-41, FF-43, FF-44).
var residencyRules = residency.Policy{Window: useWindow}

// useWindow is over which use is averaged.
const useWindow = 30 * time.Second

// review lets every instance of a function have the residency that its use calls for. At most one is Shared (FF-45).
func (p *pool) review() {
	now := p.world.clock.now
	for _, i := range slices.Clone(p.instances) {
		if i.leaving || !i.ready {
			continue
		}
		switch next := residencyRules.Next(now, i.standing()); {
		case next == i.residency, next == scaling.Hot && (!i.deployed || !p.world.fitsAgain(i)), next == scaling.Cold && i.deployed:
		case next == scaling.Cold:
			p.leave(i)
		case next == scaling.Hot, p.sharing() == nil:
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

// sharing returns the instance of the function that reserves nothing.
func (p *pool) sharing() *instance {
	for _, i := range p.instances {
		if i.residency == scaling.Shared && !i.leaving {
			return i
		}
	}
	return nil
}

// retired returns an instance that is loaded but not deployed.
func (p *pool) retired() *instance {
	for _, i := range p.instances {
		if !i.deployed && !i.leaving {
			return i
		}
	}
	return nil
}
