package serving

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// scale runs the scaler and applies its decisions. The scaler sees only deployed instances: surplus ones are deleted, or
// retired where the policy retains them.
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

// deploy starts an instance: at once if a retired one exists, else after loading from host memory or storage. If no GPU has
// capacity it does nothing, and the scaler requests it again.
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

// adopt updates the scaler's state to the configuration that was deployed, which may differ from the requested one.
func (p *sharedFunction) recordConfiguration(i *instance) {
	for at := range p.state.Instances {
		if p.state.Instances[at].ID == i.id {
			p.state.Instances[at].Configuration = i.configuration
		}
	}
}

// start places an instance on a GPU, or returns nil if none has capacity. With retention, one instance of a function
// initially reserves no SMs (FF-44, FF-45).
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

// withdraw removes an instance from the deployed ones. A retained instance keeps its memory and runs on SMs that are left
// over, one per function; others move to host memory.
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

// spare is an instance whose model data are kept in host memory.
type warmInstance struct {
	configuration scaling.Configuration
	since         time.Duration
}

// evict moves an instance to host memory.
func (p *sharedFunction) moveToHost(i *instance) {
	p.warm = append(p.warm, warmInstance{i.configuration, p.sim.clock.now})
	if i.deployed {
		p.forget(i.id)
	}
	p.remove(i)
}
