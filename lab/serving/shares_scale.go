package serving

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/serving/rules/scaling/pool"
)

// scale runs the function's autoscaler and applies its decisions by the rules of package pool. The autoscaler counts only the instances
// that should be hot: those that it demotes become surplus.
func (p *sharedFunction) scale() error {
	decisions, state, err := p.scaler.Decide(p.sim.clock.now, scaling.Load{Rate: scaling.Rate(p.arrived)}, p.state)
	if err != nil {
		return err
	}
	p.rate, p.arrived, p.state = float64(p.arrived), 0, state
	for _, d := range decisions {
		if d.Action == scaling.Demote {
			p.state = p.state.Without(d.Instance.ID)
		}
	}
	for {
		have := p.standing()
		step, more := p.sim.policy.pool.Next(p.state.Instances, have)
		if !more {
			break
		}
		p.apply(step, have)
	}
	if p.sim.policy.pool.Retain {
		p.review()
	}
	p.dispatch()
	return nil
}

// standing returns the function's instances in the form of package pool: those on GPUs, followed by those in host memory.
func (p *sharedFunction) standing() []pool.Instance {
	var have []pool.Instance
	for _, i := range p.instances {
		have = append(have, i.standing())
	}
	return append(have, p.warm...)
}

// apply carries out a step for an instance in have. If there is no room for an instance that starts or comes back from host
// memory, it does nothing, and the autoscaler requests the instance again.
func (p *sharedFunction) apply(step pool.Step, have []pool.Instance) {
	switch step.Do {
	case pool.Start:
		if p.load(step.For, step, p.function.LoadCold) {
			p.sim.record.result.ColdStarts++
		}
	case pool.Adopt:
		p.state = p.state.Replace(step.For, have[step.At].ID, step.Configuration)
	case pool.Promote:
		id := have[step.At].ID
		if p.load(id, step, p.function.LoadWarm) {
			p.sim.record.result.WarmStarts++
			p.warm = slices.DeleteFunc(p.warm, func(i pool.Instance) bool { return i.ID == id })
		}
	case pool.Demote, pool.Stop:
		p.reside(p.instances[step.At], step.To)
	}
}

// load places an instance on a GPU, where it is ready after the given time. If no GPU has room, it returns false, and the autoscaler
// does not count the instance.
func (p *sharedFunction) load(id scaling.ID, step pool.Step, takes time.Duration) bool {
	i := p.placeInstance(id, step)
	if i == nil {
		p.state = p.state.Without(id)
		return false
	}
	p.sim.clock.after(takes, func() {
		i.ready = true
		p.dispatch()
	})
	return true
}

// placeInstance places a new instance on a GPU, or returns nil if none has capacity.
func (p *sharedFunction) placeInstance(id scaling.ID, step pool.Step) *instance {
	w := p.sim
	i := &instance{id: id, function: p, configuration: step.Configuration, residency: step.To, since: w.clock.now, lastUsed: w.clock.now}
	at, ok := w.findGPU(i.reservation())
	if !ok {
		return nil
	}
	i.at, i.gpu = at, w.gpus[at]
	i.most = p.surface.LargestBatch(i.configuration.Share.SMLimit, p.maxExecution())
	i.gpu.add(i)
	w.changed = true
	p.instances = append(p.instances, i)
	return i
}

// reside changes the residency of an instance on a GPU.
func (p *sharedFunction) reside(i *instance, to scaling.Residency) {
	switch to {
	case scaling.Cold:
		p.remove(i)
	case scaling.Warm:
		p.moveToHost(i)
	default:
		i.reside(to)
	}
}

// moveToHost moves an instance's model data to host memory and removes the instance, which the autoscaler then no longer counts.
func (p *sharedFunction) moveToHost(i *instance) {
	now := p.sim.clock.now
	p.warm = append(p.warm, pool.Instance{
		ID: i.id, Configuration: i.configuration, Phase: pool.Ready, Residency: scaling.Warm, Since: now, LastUsed: now,
	})
	p.state = p.state.Without(i.id)
	p.remove(i)
}

// thresholds decide when an instance reserves its SMs and when an unused one is removed. FluidFaaS has these rules for MIG slices.
var thresholds = pool.Thresholds{Up: 600}

// retention keeps surplus instances of a function.
var retention = pool.Policy{Retain: true, Residency: thresholds}

// useWindow is the time over which the utilisation of an instance is averaged.
const useWindow = 30 * time.Second

// review changes the residency of the function's instances according to their utilisation: whether they reserve SMs, and whether they are
// removed.
func (p *sharedFunction) review() {
	now, have, onGPU := p.sim.clock.now, p.standing(), slices.Clone(p.instances)
	for at := range have {
		if at < len(onGPU) {
			have[at].Utilisation = onGPU[at].use.Utilisation(now, useWindow)
		}
		next := p.sim.policy.pool.Review(now, p.state.Instances, have, at)
		switch {
		case next == have[at].Residency, next == scaling.Hot && !p.sim.canReserveSMs(onGPU[at]):
			continue
		case at < len(onGPU):
			p.reside(onGPU[at], next)
		default:
			p.warm = slices.DeleteFunc(p.warm, func(i pool.Instance) bool { return i.ID == have[at].ID })
		}
		have[at].Residency, have[at].Since = next, now
		if next == scaling.Cold {
			have[at].Phase = pool.Draining
		}
	}
}

// standing returns the instance in the form of package pool, without its utilisation.
func (i *instance) standing() pool.Instance {
	phase := pool.Ready
	switch {
	case i.leaving:
		phase = pool.Draining
	case !i.ready:
		phase = pool.Starting
	}
	return pool.Instance{
		ID: i.id, Configuration: i.configuration, Phase: phase, Residency: i.residency, Since: i.since, LastUsed: i.lastUsed, Busy: i.batch != nil,
	}
}

func (i *instance) reside(r scaling.Residency) {
	i.gpu.meterUsage()
	i.residency, i.since = r, i.gpu.clock.now
	i.function.sim.changed = true
	i.gpu.divideSMs()
}
