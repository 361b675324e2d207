package serving

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/batching"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/serving/rules/scaling/pool"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// sharedFunction is one function on shared GPUs: its queue, its instances and its autoscaler.
type sharedFunction struct {
	sim              *shareSimulation
	function         *Function
	surface          *profile.Surface
	queue            queue
	scaler           *scaling.Scaler
	state            scaling.State
	instances        []*instance     // loading, serving or leaving
	arrived          int             // requests arrived in this second
	warm             []pool.Instance // in host memory
	limit, available share.PerMille  // of the SMs, for predictions
	waiting          []int32         // queued requests in order of arrival, which is also that of their deadlines
	rate             float64         // requests per second in the last second
	wake             time.Duration
}

func (p *sharedFunction) arrive(request int32) {
	p.arrived++
	w := p.sim
	if !p.queue.add(request, w.record.deadline(request), w.clock.now, p.batchingLoad(p.idleInstance())) {
		w.record.refuse(request)
		return
	}
	p.waiting = append(p.waiting, request)
	p.dispatch()
}

// dispatch starts batches while there are queued requests and idle instances.
func (p *sharedFunction) dispatch() {
	for p.queue.len() > 0 {
		idle := p.idleInstance()
		if idle != nil && idle.residency == scaling.Shared && p.canWait() {
			return
		}
		batch := p.nextBatch(idle)
		if len(batch) == 0 {
			return
		}
		idle.target = p.batchTimeLimit(batch)
		idle.gpu.startBatch(idle, batch)
	}
}

// nextBatch removes and returns the next batch of the queue for an idle instance. It refuses requests that are too late.
func (p *sharedFunction) nextBatch(idle *instance) []int32 {
	most := 0
	if idle != nil {
		most = idle.most
	}
	p.available = idle.availableSMs(p.limit)
	fire, refused, wake := p.queue.next(most, p.sim.clock.now, p.batchingLoad(idle))
	p.available = p.limit
	for _, r := range refused {
		p.sim.record.refuse(r)
	}
	p.waiting = p.waiting[len(fire)+len(refused):]
	if len(fire) == 0 {
		p.wakeAt(wake)
	}
	return fire
}

func (p *sharedFunction) wakeAt(t time.Duration) {
	if t <= p.sim.clock.now || p.wake > p.sim.clock.now && p.wake <= t {
		return
	}
	p.wake = t
	p.sim.clock.schedule(t, p.dispatch)
}

// batchingLoad returns the state of the function's instances, on which the queue bases its decisions. The next batch is for the
// given idle instance.
func (p *sharedFunction) batchingLoad(idle *instance) batching.Load {
	l := batching.Load{}
	for _, i := range p.instances {
		if i.leaving || !i.ready {
			continue
		}
		r := batching.Replica{ID: int(i.id), Busy: i != idle, FreeAt: instant(p.sim.clock.now)}
		if i.batch != nil {
			r.FreeAt = instant(i.expectedEnd())
		}
		l.Replicas = append(l.Replicas, r)
	}
	return l
}

func (p *sharedFunction) ended(i *instance) {
	w := p.sim
	for _, r := range i.gpu.endBatch(i) {
		w.record.answer(r, w.clock.now)
	}
	i.lastUsed = w.clock.now
	i.use.Add(i.began, w.clock.now)
	if i.leaving {
		p.gone(i)
	}
	p.dispatch()
}

// remove removes an instance of the function, after its running batch if there is one.
func (p *sharedFunction) remove(i *instance) {
	i.leaving = true
	if i.batch == nil {
		p.gone(i)
	}
}

func (p *sharedFunction) gone(i *instance) {
	i.gpu.remove(i)
	p.instances = slices.DeleteFunc(p.instances, func(o *instance) bool { return o == i })
	p.sim.changed = true
}

// idleInstance returns the idle instance that should run the function's next batch, or nil. It prefers instances that reserve SMs, then
// those that the autoscaler counts.
func (p *sharedFunction) idleInstance() *instance {
	var best *instance
	for _, i := range p.instances {
		if i.ready && !i.leaving && i.batch == nil && (best == nil || p.rank(i) < p.rank(best)) {
			best = i
		}
	}
	return best
}

func (p *sharedFunction) rank(i *instance) int {
	switch {
	case i.residency == scaling.Hot:
		return 0
	case slices.ContainsFunc(p.state.Instances, func(counted scaling.Instance) bool { return counted.ID == i.id }):
		return 1
	}
	return 2
}

// canWait reports whether an instance with reserved SMs will be free in time for all requests that are queued or arrive until then. If
// so, instances without reserved SMs are not used: they would run smaller batches on SMs that are not paid for.
func (p *sharedFunction) canWait() bool {
	now := p.sim.clock.now
	for _, i := range p.instances {
		if i.residency != scaling.Hot || i.batch == nil || i.leaving {
			continue
		}
		end := i.expectedEnd()
		batch := len(p.waiting) + int(p.rate*(end-now).Seconds()) + 1
		if batch <= i.most && end+p.surface.Latency(batch, i.configuration.Share.SMRequest) <= p.sim.record.deadline(p.waiting[0]) {
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
