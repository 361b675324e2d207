package serving

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/batching"
	"github.com/gshare-dev/gshare/serving/rules/profile"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/serving/rules/scaling/pool"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Replicas says how a function is served on a cluster, as in its GPUFunction: by replicas with equal shares, each with one request at a time.
type Replicas struct {
	Share  share.Share    // of each replica
	Rate   scaling.Rate   // requests per second that one replica answers within the SLO
	Takes  time.Duration  // execution time of a request on a replica that may use the GPU all the time
	Window time.Duration  // the nodes' quota window, in which a replica uses the GPU for at most its limit; default 100 ms
	Ends   time.Duration  // time from a replica's last request until its share is free
	Policy scaling.Policy // its period must be a second
}

func (r *Replicas) validate() error {
	switch {
	case r.Takes <= 0 || r.Takes > time.Hour:
		return share.Invalid("takes", "%v is not above 0 and at most 1h", r.Takes)
	case r.Window < 0 || r.Window > time.Minute:
		return share.Invalid("quotaWindow", "%v is outside 0 to 1m", r.Window)
	case r.Ends < 0 || r.Ends > time.Hour:
		return share.Invalid("ends", "%v is outside 0 to 1h", r.Ends)
	}
	return nil
}

// replicaSimulation simulates functions as serving/fleet and serving/gateway serve them on a cluster with room for all replicas. While a function has no
// replica, requests wait as long as the first one takes to start; later ones that are predicted to be late are refused. A replica in reserve reserves no
// SM-time, but is as fast as the others: it is assumed that others leave it the time it needs.
type replicaSimulation struct {
	clock     *clock
	record    *record
	decided   func(at time.Duration, function string, d scaling.Decision) // may be nil
	functions []*replicated
	gpu       float64 // seconds of whole GPUs that were reserved, or used by replicas in reserve
}

// replicated is one function with its queue, its replicas and its autoscaler.
type replicated struct {
	sim      *replicaSimulation
	function *Function
	scaler   *scaling.Scaler
	all      scaling.Configuration
	state    scaling.State
	replicas []*replica // by ID; removed once their share is free
	queue    deadlineQueue
	held     []int32 // requests that wait for the first replica
	arrived  int     // since the last decision
	flying   int
	before   counted // at the last decision
	now      counted
}

// counted is how many requests of a function were answered, and how many were refused.
type counted struct{ finished, refused int }

// replica is one replica of a function.
type replica struct {
	id        scaling.ID
	phase     pool.Phase
	residency scaling.Residency
	since     time.Duration // time up to which its reservation has been counted
	busy      bool
	began     time.Duration  // when its request began
	times     batching.Times // of its requests, as measured by the gateway
	used      []span         // when it used the GPU, within the last quota window
}

// span is a period in which a replica used the GPU.
type span struct{ from, to time.Duration }

func newReplicaSimulation(in *Input, c *clock, r *record) (simulation, error) {
	w := &replicaSimulation{clock: c, record: r, decided: in.Decided}
	for i := range in.Functions {
		f, err := w.newFunction(&in.Functions[i])
		if err != nil {
			return nil, profile.WithinField(fmt.Sprintf("functions[%d].replicas", i), err)
		}
		w.functions = append(w.functions, f)
	}
	for _, f := range w.functions { // the minimum exists before the trace begins
		if err := f.scale(0); err != nil {
			return nil, err
		}
		for _, i := range f.replicas {
			i.phase = pool.Ready
			r.result.ColdStarts--
		}
	}
	return w, nil
}

func (w *replicaSimulation) newFunction(f *Function) (*replicated, error) {
	if f.Replicas == nil {
		return nil, share.Invalid("share", "is missing: the policy needs to know what serves the function")
	}
	if err := f.Replicas.validate(); err != nil {
		return nil, err
	}
	p := &replicated{sim: w, function: f, all: scaling.Configuration{Share: f.Replicas.Share, Batch: 1, Throughput: f.Replicas.Rate}}
	var err error
	if p.scaler, err = scaling.New(f.Replicas.Policy, []scaling.Configuration{p.all}); err != nil {
		return nil, err
	}
	p.queue.Queue, err = batching.New(batching.Config{MaxBatch: 1, Latency: func(int) time.Duration { return f.Replicas.Takes }})
	return p, err
}

func (w *replicaSimulation) arrive(request int32) {
	p := w.functions[w.record.arrivals[request].Function]
	p.arrived++
	load := p.load()
	switch {
	case len(load.Replicas) == 0:
		p.held = append(p.held, request)
		if len(p.state.Instances) == 0 {
			_ = p.scale(w.clock.now.Truncate(time.Second)) // everySecond reports the error
		}
	case p.flying == 0 && p.queue.len() == 0: // delays no other request, and measures the present latency
		p.serve(p.replicas[p.at(load.Replicas[0].ID)], request)
	case p.queue.add(request, w.record.deadline(request), w.clock.now, load):
		p.dispatch()
	default:
		p.refuse(request)
	}
}

func (p *replicated) refuse(request int32) {
	p.now.refused++
	p.sim.record.refuse(request)
}

// everySecond runs the autoscaler of every function with the number of requests since the last time.
func (w *replicaSimulation) everySecond() error {
	for _, p := range w.functions {
		if err := p.scale(w.clock.now); err != nil {
			return err
		}
		p.arrived, p.before = 0, p.now
	}
	return nil
}

// occupied is the load of a function that has unanswered requests but gets no new ones.
const occupied scaling.Rate = 0.0001

// scale lets the autoscaler decide how many replicas the function has, and carries out the decisions.
func (p *replicated) scale(now time.Duration) error {
	rate := scaling.Rate(p.arrived)
	if p.flying+len(p.held)+p.queue.len() > 0 {
		rate = max(rate, occupied)
	}
	decisions, state, err := p.scaler.Decide(now, scaling.Load{
		Rate: rate, Busy: p.flying, Waiting: len(p.held) + p.queue.len(), Places: 1, Ready: len(p.load().Replicas), Starting: p.starting(),
		Finished: p.now.finished - p.before.finished, Refused: p.now.refused - p.before.refused,
	}, p.state)
	if err != nil {
		return err
	}
	p.state = state
	for _, d := range decisions {
		if d.Instance.Residency >= scaling.Warm { // on the cluster, nothing keeps a model in memory without a share
			p.state = p.state.Without(d.Instance.ID)
			d.Action = scaling.Delete
		}
		if p.sim.decided != nil {
			p.sim.decided(now, p.function.Name, d)
		}
	}
	for {
		step, more := pool.Policy{}.Next(p.state.Instances, p.standing())
		if !more {
			break
		}
		switch step.Do {
		case pool.Start:
			p.start(step.For)
		case pool.Adopt:
			p.state = p.state.Replace(step.For, p.replicas[step.At].id, p.all)
		default:
			p.stop(p.replicas[step.At])
		}
	}
	for _, i := range p.replicas {
		p.reside(i)
	}
	p.dispatch()
	return nil
}

// standing returns the replicas in the form of package pool.
func (p *replicated) standing() []pool.Instance {
	var have []pool.Instance
	for _, i := range p.replicas {
		s := pool.Instance{ID: i.id, Configuration: p.all, Phase: i.phase, Residency: p.wanted(i)}
		if s.Residency == scaling.Cold {
			s.Residency, s.LastUsed = scaling.Shared, -1
		}
		have = append(have, s)
	}
	return have
}

// wanted returns the residency that the autoscaler wants for a replica; Cold if it does not count the replica.
func (p *replicated) wanted(i *replica) scaling.Residency {
	for _, counted := range p.state.Instances {
		if counted.ID == i.id {
			return counted.Residency
		}
	}
	return scaling.Cold
}

// starting returns how many replicas that the autoscaler counts are not ready yet.
func (p *replicated) starting() (n int) {
	for _, i := range p.replicas {
		if i.phase == pool.Starting && p.wanted(i) <= scaling.Shared {
			n++
		}
	}
	return n
}

func (p *replicated) start(id scaling.ID) {
	i := &replica{id: id, phase: pool.Starting, since: p.sim.clock.now}
	p.replicas = append(p.replicas, i)
	p.sim.record.result.ColdStarts++
	p.sim.clock.after(p.function.LoadCold, func() {
		if i.phase == pool.Starting {
			i.phase = pool.Ready
			p.dispatch()
		}
	})
}

// stop ends a replica after its current request.
func (p *replicated) stop(i *replica) {
	i.phase = pool.Draining
	if !i.busy {
		p.end(i)
	}
}

func (p *replicated) end(i *replica) {
	p.sim.clock.after(p.function.Replicas.Ends, func() {
		p.count(i)
		p.replicas = slices.DeleteFunc(p.replicas, func(other *replica) bool { return other == i })
	})
}

// reside makes a replica reserve its share or give it up, as the autoscaler wants.
func (p *replicated) reside(i *replica) {
	if want := p.wanted(i); want != i.residency && want != scaling.Cold {
		p.count(i)
		i.residency = want
	}
}

// count adds the time during which a replica has reserved its share to the total.
func (p *replicated) count(i *replica) {
	now := p.sim.clock.now
	if to := min(now, p.sim.record.until); i.residency == scaling.Hot && to > i.since {
		p.sim.gpu += (to - i.since).Seconds() * float64(p.all.Share.RequestArea()) / float64(share.WholeArea)
	}
	i.since = now
}

// load returns the replicas that accept requests, in the form of the queue, with those in reserve last.
func (p *replicated) load() batching.Load {
	var l batching.Load
	for _, r := range []scaling.Residency{scaling.Hot, scaling.Shared} {
		for _, i := range p.replicas {
			if i.phase == pool.Ready && i.residency == r {
				l.Replicas = append(l.Replicas, batching.Replica{
					ID: int(i.id), Busy: i.busy, FreeAt: instant(i.began + i.times.Mean(1)), Latency: func(int) time.Duration { return i.times.Mean(1) },
				})
			}
		}
	}
	return l
}

// dispatch sends requests to idle replicas. Held requests join the queue once there is a replica, behind those that can still be in time.
func (p *replicated) dispatch() {
	w := p.sim
	for load := p.load(); len(load.Replicas) > 0; load = p.load() {
		for _, r := range p.held {
			p.queue.add(r, w.clock.now+drainTime, w.clock.now, load)
		}
		p.held = nil
		d := p.queue.Decide(instant(w.clock.now), load)
		for _, r := range requests(d.Refused) {
			p.refuse(r)
		}
		if len(d.Fire) == 0 {
			return // the rest wait for a free replica; those too late by then are refused then
		}
		p.serve(p.replicas[p.at(d.Replica)], requests(d.Fire)[0])
	}
}

// at returns the index of the replica with the given ID.
func (p *replicated) at(id int) int {
	return slices.IndexFunc(p.replicas, func(i *replica) bool { return int(i.id) == id })
}

func (p *replicated) serve(i *replica, request int32) {
	w := p.sim
	r := p.function.Replicas
	from := i.mayStart(w.clock.now, cmp.Or(r.Window, 100*time.Millisecond), r.Share.QuotaLimit)
	i.busy, i.began = true, w.clock.now
	i.used = append(i.used, span{from, from + r.Takes})
	p.flying++
	if i.residency != scaling.Hot && w.clock.now < w.record.until { // it reserves no SM-time, and is charged for what it uses
		w.gpu += r.Takes.Seconds() * float64(r.Share.SMRequest) / float64(share.Whole)
	}
	w.clock.schedule(from+r.Takes, func() {
		w.record.answer(request, w.clock.now)
		p.now.finished++
		i.times.Add(1, w.clock.now-i.began, 1) // as the gateway does
		i.busy = false
		p.flying--
		if i.phase == pool.Draining {
			p.end(i)
		}
		p.dispatch()
	})
}

// mayStart returns the earliest time, from now on, at which the replica has used less than its limit during the previous window. Work that starts
// then runs to its end, as kernels do.
func (i *replica) mayStart(now, window time.Duration, limit share.PerMille) time.Duration {
	budget := window * time.Duration(limit) / time.Duration(share.Whole)
	i.used = slices.DeleteFunc(i.used, func(s span) bool { return s.to <= now-window })
	at := now
	for _, s := range i.used { // the oldest are the first to leave the window
		excess := -budget
		for _, other := range i.used {
			excess += max(0, min(other.to, at)-max(other.from, at-window))
		}
		if excess < 0 {
			return at
		}
		at = max(at, s.from+window)
		at += min(excess+1, max(0, s.to-(at-window)))
	}
	return at
}

func (w *replicaSimulation) finish(_ *priceList, r *Result) {
	for _, p := range w.functions {
		for _, i := range p.replicas {
			p.count(i)
		}
	}
	r.GPUSeconds = w.gpu
}
