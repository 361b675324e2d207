// Package fleet runs as many replicas of functions as their load needs.
//
// Every second it takes the load of each function from the gateway, asks serving/rules/scaling how many replicas that needs and serving/rules/scaling/pool which ones
// to start or end, and has a Platform do so. For a request to a function without replicas it decides at once, not only at the next second. A replica
// gets new requests from when it is ready until it is to end. Then it answers those that it has before it gets SIGTERM. A replica that ends by itself
// is started again, at once the first time and after growing pauses from then on. While all replicas of a function are in such a pause, its requests
// are refused.
//
// One goroutine, Run, takes all decisions, in the order of the events that it receives.
package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/serving/rules/scaling/pool"
)

// period is the time between two decisions about a function.
const period = time.Second

// Config configures a Fleet.
type Config struct {
	Gateways Gateways
	Platform Platform
	Log      *slog.Logger
	// KeepReplicas makes Run leave all replicas as they are when it ends, so that another process can go on with them.
	KeepReplicas bool
	// Decided, if set, is called with each decision of an autoscaler and the load at that time. It must not block or call the fleet.
	Decided func(*api.GPUFunction, scaling.Decision, scaling.Rate)
	// Moved, if set, is called with each step of a move. It must not block or call the fleet.
	Moved func(*api.GPUFunction, MoveStep)
}

// Fleet scales functions. Its methods may be called concurrently.
type Fleet struct {
	gateways Gateways
	platform Platform
	log      *slog.Logger
	keep     bool
	decided  func(*api.GPUFunction, scaling.Decision, scaling.Rate) // may be nil
	moved    func(*api.GPUFunction, MoveStep)                       // may be nil
	drained  chan *instance                                         // receives instances that have no more requests, or have had them too long
	loop     prometheus.Histogram                                   // seconds that the decisions about all functions take

	mu        sync.Mutex // guards what follows, and the functions
	ticks     int        // periods since Run began
	functions []*function
	byName    map[gateway.FunctionName]*function
	instances map[string]*instance
	have      []pool.Instance // memory of carryOut, which uses it again for each function
}

// New returns a fleet with the functions, which have to be valid, and makes them known to the gateways.
func New(c Config, functions []*api.GPUFunction) (*Fleet, error) {
	f := &Fleet{
		gateways: c.Gateways, platform: c.Platform, log: c.Log, keep: c.KeepReplicas, decided: c.Decided, moved: c.Moved, drained: make(chan *instance),
		byName: map[gateway.FunctionName]*function{}, instances: map[string]*instance{}, loop: newLoopTimes(),
	}
	for _, object := range functions {
		if err := f.Set(object); err != nil {
			return nil, fmt.Errorf("function %s/%s: %w", object.Namespace, object.Name, err)
		}
	}
	return f, nil
}

var protocols = map[api.Protocol]gateway.Protocol{api.HTTP: gateway.HTTP, api.OIP: gateway.OIP, api.OpenAI: gateway.OpenAI}

// Run scales the functions until ctx ends. Then it ends all replicas and returns when nothing is left of them, or returns at once if they are to be
// kept. Call it once.
func (f *Fleet) Run(ctx context.Context) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	f.locked(f.scaleAll)
	for stop, running := ctx.Done(), true; running || f.count() > 0; {
		select {
		case <-ticker.C:
			if running {
				f.locked(func() { f.ticks++; f.scaleAll() })
			}
		case name := <-f.gateways.Waiting():
			if running {
				f.locked(func() { f.wake(name) })
			}
		case e := <-f.platform.Events():
			f.locked(func() { f.observe(e) })
		case i := <-f.drained:
			f.locked(func() { f.end(i) })
		case <-stop:
			if f.keep {
				f.locked(f.stopDrains)
				return
			}
			stop, running = nil, false
			f.locked(f.deleteAll)
		}
	}
}

func (f *Fleet) locked(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
}

func (f *Fleet) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.instances)
}

// now returns the time since Run began, in whole periods, so that a tick which comes slightly early counts as a period.
func (f *Fleet) now() time.Duration { return time.Duration(f.ticks) * period }

func (f *Fleet) scaleAll() {
	began := time.Now()
	defer func() { f.loop.Observe(time.Since(began).Seconds()) }()
	for _, fn := range f.functions {
		if fn.removed {
			continue
		}
		load := f.gateways.Load(fn.name)
		fn.own, fn.guests = fn.work(load), scaling.Load{}
		fn.addLoad(load)
	}
	for _, fn := range f.functions {
		if !fn.removed {
			f.addGuest(fn)
		}
	}
	for _, fn := range f.functions {
		if !fn.removed {
			f.scale(fn)
		}
	}
	for _, fn := range f.functions {
		for _, i := range fn.sorted() {
			switch {
			case i.phase == backingOff && f.now() >= i.retry:
				f.create(i)
				f.publish(i.function)
			case (i.phase == starting || i.phase == restarting) && !time.Now().Before(i.reminder):
				f.log.Info("replica is still starting", "replica", i.Name, "seconds", int(time.Since(i.created).Seconds()), "reason", i.message)
				i.reminder = i.reminder.Add(reminderPeriod)
			}
		}
	}
	f.makeRoom()
}

// wake scales a function to which a request has come, if it has no replicas or only parked ones.
func (f *Fleet) wake(name gateway.FunctionName) {
	if fn := f.byName[name]; fn != nil && !fn.removed && !fn.serves() {
		fn.own, fn.guests = fn.work(f.gateways.Load(name)), scaling.Load{}
		for _, guest := range f.functions {
			if f.hostOf(guest) == fn {
				guest.own = guest.work(f.gateways.Load(guest.name))
				f.addGuest(guest)
			}
		}
		f.scale(fn)
	}
}

// scale decides about a function and carries the decisions out.
func (f *Fleet) scale(fn *function) {
	load, scaler := f.demand(fn)
	rate := load.Rate
	decisions, state, err := scaler.Decide(f.now(), load, fn.state)
	if err != nil {
		f.log.Error("failed to scale", "function", fn.name.String(), "rate", float64(rate), "error", err)
		return
	}
	fn.state = state
	for _, d := range decisions {
		name := InstanceName(fn.name, d.Instance.ID)
		f.log.Info(string(d.Action)+" replica", "replica", name, "residency", d.Instance.Residency.String(), "reason", string(d.Rule), "load", float64(rate))
		if d.Instance.Residency >= scaling.Warm && !(d.Instance.Residency == scaling.Warm && fn.parks(d.Instance.ID)) {
			fn.state = fn.state.Without(d.Instance.ID)
			d.Action = scaling.Delete
		}
		if f.decided != nil {
			f.decided(fn.object, d, rate)
		}
	}
	if !slices.ContainsFunc(decisions, adds) {
		f.sayWhyNoMore(fn, scaler.WhyNoMore(f.now(), state), load)
	}
	if f.carryOut(fn) || len(decisions) > 0 {
		f.publish(fn)
	}
}

func adds(d scaling.Decision) bool { return d.Action == scaling.Create || d.Action == scaling.Promote }

// sayWhyNoMore logs why a function gets no more replicas although it refuses requests, at most once a reminderPeriod.
func (f *Fleet) sayWhyNoMore(fn *function, why string, load scaling.Load) {
	switch {
	case why != "" && why != fn.short && time.Since(fn.shortSince) >= reminderPeriod:
		f.log.Warn("requests are refused, and no replica is added", "function", fn.name.String(), "refused", load.Refused, "reason", why)
		fn.short, fn.shortSince = why, time.Now()
	case why == "" && load.Rate == 0:
		fn.short = "" // the next burst is worth another line
	}
}

// carryOut starts and ends instances until those of a function match what its autoscaler wants, and reports whether it did anything.
func (f *Fleet) carryOut(fn *function) (changed bool) {
	for {
		instances := fn.leading()
		f.have = fn.standing(f.have[:0], instances, f.now(), f.gateways)
		step, more := pool.Policy{}.Next(fn.state.Instances, f.have)
		if !more {
			return f.replace(fn) || changed
		}
		changed = true
		switch step.Do {
		case pool.Start:
			f.start(fn, step.For)
		case pool.Adopt:
			i := instances[step.At]
			f.log.Info("keep replica", "replica", i.Name, "instead of", InstanceName(fn.name, step.For))
			fn.state = fn.state.Replace(step.For, i.ID, step.Configuration)
		default:
			f.retire(instances[step.At])
		}
	}
}

// start creates an instance with an ID.
func (f *Fleet) start(fn *function, id scaling.ID) {
	v := fn.variantFor(id)
	fn.state = fn.state.Replace(id, id, v.configuration) // the function's share may have changed since the autoscaler counted the instance
	i := &instance{Instance: Instance{Name: InstanceName(fn.name, id), ID: id, Function: v.object, Share: v.configuration.Share}, function: fn}
	f.add(i)
	f.create(i)
}

func (f *Fleet) add(i *instance) {
	f.instances[i.Name] = i
	i.function.instances[i.ID], i.function.byAge = i, nil
}

// Times after which the log says what a starting replica is waiting for. A server without a model to load has started by firstReminder, and one line
// per minute does not hide what others write.
const (
	firstReminder  = 5 * time.Second
	reminderPeriod = time.Minute
)

func (f *Fleet) create(i *instance) {
	i.phase, i.created, i.readySince, i.stays, i.queued = starting, time.Now(), time.Time{}, scaling.Hot, false
	i.Residency, i.foreign = i.wanted(), false
	i.outdated = i.differs()
	i.reminder = i.created.Add(firstReminder)
	i.function.starts++
	f.platform.Create(i.Instance)
}

// delete ends an instance once it has answered its requests. One that is no longer ready may still have some.
func (f *Fleet) delete(i *instance) {
	switch {
	case i.phase == backingOff: // nothing is left of it
		f.remove(i)
	case i.phase == restarting || i.phase == starting && i.readySince.IsZero():
		f.end(i)
	case i.phase == starting || i.phase == ready:
		f.drain(i, i.Function.Grace())
	case i.phase == draining && i.hurry != nil:
		i.hurry.Reset(min(i.Function.Grace(), time.Until(i.drainEnds)))
		i.hurry = nil
	}
}

// longestRequest is how long a replica that is not needed may take to answer its requests while nobody needs its share. It bounds what a stream that never
// ends can hold.
const longestRequest = 10 * time.Minute

// retire ends an instance that is not needed, or replaced, once it has answered its requests, however long they take within longestRequest. delete and GiveUp then make
// it end within its grace period.
func (f *Fleet) retire(i *instance) {
	switch i.phase {
	case draining:
		return
	case ready:
	default:
		f.delete(i)
		return
	}
	limit := max(longestRequest, i.Function.Grace())
	i.hurry, i.drainEnds = f.drain(i, limit), time.Now().Add(limit)
}

// drain waits until an instance has answered its requests, at most until the timer that it returns, and then ends the instance, which has its grace period
// to do so.
func (f *Fleet) drain(i *instance, limit time.Duration) *time.Timer {
	i.phase, i.since = draining, time.Now()
	ctx, stop := context.WithCancel(context.Background())
	limited, cut := context.WithCancel(ctx)
	i.stopDrain = stop
	timer := time.AfterFunc(limit, cut)
	go func() {
		defer timer.Stop()
		defer cut()
		f.awaitDrained(ctx, limited, i)
	}()
	return timer
}

// awaitDrained reports on f.drained when an instance has answered its requests or limited ends. It gives up when ctx ends.
func (f *Fleet) awaitDrained(ctx, limited context.Context, i *instance) {
	if err := f.gateways.Drain(limited, i.function.name, i.Name); err != nil && ctx.Err() == nil {
		f.log.Warn("replica did not answer its requests in time", "replica", i.Name)
	}
	select {
	case f.drained <- i:
	case <-ctx.Done():
	}
}

// end tells the platform to end an instance.
func (f *Fleet) end(i *instance) {
	if i.phase != starting && i.phase != restarting && i.phase != draining {
		return
	}
	i.phase, i.since = stopping, time.Now()
	f.platform.Delete(i.Name)
	f.publish(i.function)
}

// stopDrains stops all waits for instances to answer their requests. It does not end the instances.
func (f *Fleet) stopDrains() {
	for _, i := range f.instances {
		if i.stopDrain != nil {
			i.stopDrain()
		}
	}
}

func (f *Fleet) deleteAll() {
	for _, i := range f.instances {
		f.delete(i)
	}
}

// restartPause is after how long a replica that the platform restarts is expected to start, since the platform does not say.
const restartPause = 10 * time.Second

// observe applies an event of an instance. An instance that has failed is created again if it is still wanted.
func (f *Fleet) observe(e Event) {
	i := f.instances[e.Instance]
	if i == nil {
		f.log.Error("event of an unknown replica", "replica", e.Instance, "event", string(e.Kind))
		return
	}
	wanted := i.phase == starting || i.phase == restarting || i.phase == ready
	if e.Kind == Failed || e.Kind == Gone {
		i.function.gpuTime += i.gpuTime(time.Now())
	}
	switch {
	case e.Kind == CannotPark && wanted:
		f.keepUnparked(i, e)
	case e.Kind == Starting && i.isParked(): // expected: a parked server cannot answer probes
	case (e.Kind == Failed || e.Kind == Restarting) && i.isParked():
		f.lose(i, e)
	case (e.Kind == Failed || e.Kind == Restarting) && wanted && f.abandon(i, e):
	case (e.Kind == Starting || e.Kind == Restarting) && wanted:
		f.unready(i, e)
	case e.Kind == Ready && i.phase == ready:
		i.address = e.Address
		f.publish(i.function)
	case e.Kind == Ready && wanted:
		i.phase, i.address, i.message, i.readySince = ready, e.Address, "", time.Now()
		f.log.Info("replica is ready", "replica", i.Name, "address", i.address, "seconds", i.readySince.Sub(i.created).Seconds())
		f.publish(i.function)
		f.succeed(i)
	case e.Kind == NoRoom && wanted:
		f.log.Info("replica stays "+max(scaling.Shared, e.Residency).String(), "replica", i.Name, "reason", e.Message)
		f.refuse(i, max(scaling.Shared, e.Residency))
	case e.Kind == Failed && wanted:
		i.function.failures++
		pause := i.fail(e.Message)
		i.retry = f.now() + pause
		f.log.Warn("replica failed", "replica", i.Name, "reason", e.Message, "again in", pause)
		if pause == 0 {
			f.create(i)
		}
		f.publish(i.function)
	case e.Kind == Failed || e.Kind == Gone:
		f.log.Info("replica has ended", "replica", i.Name, "reason", e.Message)
		f.remove(i)
	}
}

// unready notes that an instance accepts no requests, either not yet or no longer.
func (f *Fleet) unready(i *instance, e Event) {
	before := i.phase
	i.phase, i.message, i.queued = starting, e.Message, e.Queued
	if e.Kind == Restarting {
		i.phase, i.retry, i.readySince = restarting, f.now()+restartPause, time.Time{}
	}
	if i.phase == before {
		return
	}
	i.since = time.Now()
	i.reminder = i.since.Add(firstReminder)
	switch {
	case i.phase == restarting:
		i.function.failures++
		f.log.Warn("replica failed", "replica", i.Name, "reason", e.Message)
	case before == ready:
		f.log.Warn("replica is not ready any more", "replica", i.Name, "reason", e.Message)
	}
	f.publish(i.function)
}

func (f *Fleet) remove(i *instance) {
	if i.stopDrain != nil {
		i.stopDrain()
	}
	delete(f.instances, i.Name)
	delete(i.function.instances, i.ID)
	i.function.byAge = nil
	if i.function.removed && len(i.function.instances) == 0 {
		f.forget(i.function)
		return
	}
	f.publish(i.function)
}
