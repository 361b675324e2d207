package serving

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// scale runs the function's autoscaler and applies its decisions. The autoscaler sees only deployed instances: surplus ones are deleted,
// or retired (kept loaded, but not deployed) where the policy retains them.
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

// deploy starts an instance that the autoscaler requested: at once if a retired one exists, otherwise after loading from host memory or
// storage. If no GPU has capacity it does nothing, and the autoscaler requests the instance again.
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

// placeInstance places a new instance on a GPU, or returns nil if none has capacity. Where the policy retains instances, one instance of
// a function initially reserves no SMs.
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
	i.most = p.surface.largestBatch(c.Share.SMLimit, p.maxExecution())
	i.gpu.add(i)
	w.changed = true
	p.instances = append(p.instances, i)
	return i
}

func (p *sharedFunction) forget(id scaling.ID) {
	p.state.Instances = slices.DeleteFunc(p.state.Instances, func(i scaling.Instance) bool { return i.ID == id })
}

// undeploy removes an instance from those that the autoscaler counts. Where the policy retains instances, one per function keeps its
// memory and runs on SMs that are left over, and the others move to host memory.
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
