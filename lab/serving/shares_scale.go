package serving

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// scale runs the scaler and applies its decisions. The scaler sees only deployed instances: surplus ones are deleted, or
// retired where the policy retains them.
func (p *pool) scale() error {
	decisions, state, err := p.scaler.Decide(p.world.clock.now, scaling.Rate(p.arrived), p.state)
	if err != nil {
		return err
	}
	p.rate, p.arrived, p.state = float64(p.arrived), 0, state
	for _, d := range decisions {
		switch d.Action {
		case scaling.Create:
			p.deploy(d.Instance)
		case scaling.Demote:
			p.withdraw(d.Instance.ID)
		}
	}
	if p.world.policy.retains {
		p.review()
	}
	p.dispatch()
	return nil
}

// deploy starts an instance: at once if a retired one exists, else after loading from host memory or storage. If no GPU has
// capacity it does nothing, and the scaler requests it again.
func (p *pool) deploy(want scaling.Instance) {
	if i := p.retiredInstance(); i != nil {
		i.id, i.deployed = want.ID, true
		p.adopt(i)
		return
	}
	took, takes := want.Configuration, p.function.LoadCold
	warm := len(p.warm) > 0
	if warm {
		took, takes = p.warm[len(p.warm)-1].configuration, p.function.LoadWarm
	}
	i := p.start(want.ID, took)
	if i == nil {
		p.forget(want.ID)
		return
	}
	if warm {
		p.warm = p.warm[:len(p.warm)-1]
		p.world.record.result.WarmStarts++
	} else {
		p.world.record.result.ColdStarts++
	}
	p.adopt(i)
	p.world.clock.after(takes, func() {
		i.ready = true
		p.dispatch()
	})
}

// adopt updates the scaler's state to the configuration that was deployed, which may differ from the requested one.
func (p *pool) adopt(i *instance) {
	for at := range p.state.Instances {
		if p.state.Instances[at].ID == i.id {
			p.state.Instances[at].Configuration = i.configuration
		}
	}
}

// start places an instance on a GPU, or returns nil if none has capacity. With retention, one instance of a function
// initially reserves no SMs (FF-44, FF-45).
func (p *pool) start(id scaling.ID, c scaling.Configuration) *instance {
	w := p.world
	i := &instance{id: id, pool: p, configuration: c, deployed: true, since: w.clock.now, lastUsed: w.clock.now}
	if w.policy.retains && p.sharedInstance() == nil {
		i.residency = scaling.Shared
	}
	at, ok := w.place(i.reservation())
	if !ok {
		return nil
	}
	i.at, i.gpu = at, w.gpus[at]
	i.most = p.surface.largest(c.Share.SMLimit, p.maxExecution())
	i.gpu.add(i)
	w.changed = true
	p.instances = append(p.instances, i)
	return i
}

func (p *pool) forget(id scaling.ID) {
	p.state.Instances = slices.DeleteFunc(p.state.Instances, func(i scaling.Instance) bool { return i.ID == id })
}

// withdraw removes an instance from the deployed ones. A retained instance keeps its memory and runs on SMs that are left
// over, one per function; others move to host memory.
func (p *pool) withdraw(id scaling.ID) {
	p.forget(id)
	i := p.find(id)
	switch {
	case i == nil:
		return
	case !p.world.policy.retains:
		p.leave(i)
		return
	}
	i.deployed = false
	if other := p.sharedInstance(); other != nil && other != i {
		p.evict(i)
		return
	}
	if i.residency == scaling.Hot {
		i.reside(scaling.Shared)
	}
}

// spare is an instance whose model data are kept in host memory.
type spare struct {
	configuration scaling.Configuration
	since         time.Duration
}

// evict moves an instance to host memory.
func (p *pool) evict(i *instance) {
	p.warm = append(p.warm, spare{i.configuration, p.world.clock.now})
	if i.deployed {
		p.forget(i.id)
	}
	p.leave(i)
}
