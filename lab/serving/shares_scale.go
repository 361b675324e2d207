package serving

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/pipeline/residency"
	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// scale runs the function's autoscaler and applies its decisions. The autoscaler sees only deployed instances: surplus ones are deleted
// or, if the policy keeps them, retired (still loaded, but not deployed).
func (p *sharedFunction) scale() error {
	decisions, state, err := p.scaler.Decide(p.sim.clock.now, scaling.Rate(p.arrived), p.state)
	if err != nil {
		return err
	}
	p.rate, p.arrived, p.state = float64(p.arrived), 0, state
	for _, d := range decisions {
		switch d.Action {
		case scaling.Create:
			p.deploy(d.Instance)
		case scaling.Demote:
			p.undeploy(d.Instance.ID)
		}
	}
	if p.sim.policy.retains {
		p.updateResidency()
	}
	p.dispatch()
	return nil
}

// deploy starts an instance that the autoscaler requested: at once if a surplus one is still loaded, otherwise after loading from host
// memory or storage. If no GPU has capacity it does nothing, and the autoscaler requests the instance again.
func (p *sharedFunction) deploy(want scaling.Instance) {
	if i := p.retiredInstance(); i != nil {
		i.id, i.deployed = want.ID, true
		p.recordConfiguration(i)
		return
	}
	took, takes := want.Configuration, p.function.LoadCold
	warm := len(p.warm) > 0
	if warm {
		took, takes = p.warm[len(p.warm)-1].configuration, p.function.LoadWarm
	}
	i := p.placeInstance(want.ID, took)
	if i == nil {
		p.forget(want.ID)
		return
	}
	if warm {
		p.warm = p.warm[:len(p.warm)-1]
		p.sim.record.result.WarmStarts++
	} else {
		p.sim.record.result.ColdStarts++
	}
	p.recordConfiguration(i)
	p.sim.clock.after(takes, func() {
		i.ready = true
		p.dispatch()
	})
}

// recordConfiguration writes the configuration of a deployed instance, which may differ from the requested one, to the autoscaler's
// state.
func (p *sharedFunction) recordConfiguration(i *instance) {
	for at := range p.state.Instances {
		if p.state.Instances[at].ID == i.id {
			p.state.Instances[at].Configuration = i.configuration
		}
	}
}

// placeInstance places a new instance on a GPU, or returns nil if none has capacity. If the policy keeps surplus instances, one instance
// of a function initially reserves no SMs.
func (p *sharedFunction) placeInstance(id scaling.ID, c scaling.Configuration) *instance {
	w := p.sim
	i := &instance{id: id, function: p, configuration: c, deployed: true, since: w.clock.now, lastUsed: w.clock.now}
	if w.policy.retains && p.sharedInstance() == nil {
		i.residency = scaling.Shared
	}
	at, ok := w.findGPU(i.reservation())
	if !ok {
		return nil
	}
	i.at, i.gpu = at, w.gpus[at]
	i.most = p.surface.LargestBatch(c.Share.SMLimit, p.maxExecution())
	i.gpu.add(i)
	w.changed = true
	p.instances = append(p.instances, i)
	return i
}

func (p *sharedFunction) forget(id scaling.ID) {
	p.state.Instances = slices.DeleteFunc(p.state.Instances, func(i scaling.Instance) bool { return i.ID == id })
}

// undeploy removes an instance from those that the autoscaler counts. If the policy keeps surplus instances, one per function keeps its
// memory and runs on SMs that are left over, and further ones move to host memory. Otherwise the instance is deleted.
func (p *sharedFunction) undeploy(id scaling.ID) {
	p.forget(id)
	i := p.find(id)
	switch {
	case i == nil:
		return
	case !p.sim.policy.retains:
		p.remove(i)
		return
	}
	i.deployed = false
	if other := p.sharedInstance(); other != nil && other != i {
		p.moveToHost(i)
		return
	}
	if i.residency == scaling.Hot {
		i.reside(scaling.Shared)
	}
}

// warmInstance is an instance whose model data is kept in host memory.
type warmInstance struct {
	configuration scaling.Configuration
	since         time.Duration
}

// moveToHost moves an instance's model data to host memory and removes the instance.
func (p *sharedFunction) moveToHost(i *instance) {
	p.warm = append(p.warm, warmInstance{i.configuration, p.sim.clock.now})
	if i.deployed {
		p.forget(i.id)
	}
	p.remove(i)
}

// residencyPolicy decides when an instance on a shared GPU reserves its SMs and when an unused one is removed. FluidFaaS has these rules
// for MIG slices.
var residencyPolicy = residency.Policy{Up: 600, Window: useWindow}

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

// retiredInstance returns a surplus instance, which is loaded but not counted as deployed by the autoscaler, or nil.
func (p *sharedFunction) retiredInstance() *instance {
	for _, i := range p.instances {
		if !i.deployed && !i.leaving {
			return i
		}
	}
	return nil
}
