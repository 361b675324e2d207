package gateway

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// hosting says that the requests of a function, the guest, are served by the replicas of another function, its host. They wait in the host's queue
// and may share a batch with the host's requests, but keep their own function's deadlines, callers, bounds and counters.
//
// Without replicas nothing is answered. So whatever the phase, requests go to whichever of the two functions has replicas: to the guest's own until
// the host has some, and to the host's until the guest has its own again.
type hosting struct {
	host  *function
	phase hostingPhase
}

// place says in which queue the requests of a function wait.
type place struct {
	of   *function
	host atomic.Pointer[hosting] // nil without a host
}

type hostingPhase int

const (
	hostServes hostingPhase = iota // the host serves as long as it has replicas
	hostEnds                       // the guest is to serve its requests itself, once it has replicas
	hostLeft                       // the guest does so; requests still in the host's queue move to the guest if the host loses its replicas
)

// queue returns the function in whose queue new requests wait.
func (p *place) queue() *function {
	f, h := p.of, p.host.Load()
	switch {
	case h == nil || h.phase == hostLeft:
		return f
	case h.phase == hostServes && (h.host.ready.Load() || !f.ready.Load()):
		return h.host
	case h.phase == hostEnds && h.host.ready.Load() && !f.ready.Load():
		return h.host
	}
	return f
}

// lock returns the function that queue returns, with its mutex held, and the settings of the place's own function.
func (p *place) lock() (*function, Function) {
	f := p.of
	for {
		queue := p.queue()
		if queue == f {
			f.mu.Lock()
			if p.queue() == f {
				return f, f.config
			}
			f.mu.Unlock()
			continue
		}
		settings := f.settings()
		queue.mu.Lock()
		if p.queue() == queue { // otherwise what waits there may already have been moved
			return queue, settings
		}
		queue.mu.Unlock()
	}
}

// maxBatch returns the larger MaxBatch of the function and its host. own is the function's.
func (p *place) maxBatch(own int) int {
	if queue := p.queue(); queue != p.of {
		return max(own, queue.settings().MaxBatch)
	}
	return own
}

// SetHost makes the replicas of another function of the same namespace, the host, serve the requests of a function. If host is empty, the function is
// to serve them itself again. No request is lost either way: the function's own replicas serve while the host has none, and the host's until the
// function has its own. The function keeps its own objective, bounds, callers and load. SetHost has no effect if the function is not known. The error
// is a *share.FieldError if the host cannot serve its requests.
func (g *Gateway) SetHost(name, host FunctionName) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.functions[name]
	if f == nil {
		return nil
	}
	now := f.place.host.Load()
	if host == (FunctionName{}) {
		if now != nil && now.phase == hostServes {
			f.place.host.Store(&hosting{now.host, hostEnds})
			f.place.settle()
		}
		return nil
	}
	h := g.functions[host]
	switch {
	case h == nil || h == f || host.Namespace != name.Namespace:
		return share.Invalid("host", "%q of function %q: want another function of its namespace", host, name)
	case h.settings().Protocol != f.settings().Protocol:
		return share.Invalid("host", "%q of function %q: want the same protocol", host, name)
	case now != nil && now.host == h && now.phase == hostServes:
		return nil
	}
	before := g.leaveHost(f)
	g.guests[host] = append(g.guests[host], f)
	f.place.host.Store(&hosting{h, hostServes})
	if before != nil && before != h && !before.ready.Load() {
		move(f, before, f.place.queue())
	}
	f.place.settle()
	return nil
}

// DropHost takes the requests of a function away from its present or previous host, except those that a replica of the host already has: the host may
// not serve them any longer, for instance because it has another model by now. The others wait for the function's own replicas, as do those whose
// replica fails later. It has no effect if the function is not known.
func (g *Gateway) DropHost(name FunctionName) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if f := g.functions[name]; f != nil {
		if host := g.leaveHost(f); host != nil {
			move(f, host, f)
		}
	}
}

// leaveHost ends the hosting of a function and returns its host, or nil if it had none. The caller holds the gateway's mutex.
func (g *Gateway) leaveHost(f *function) *function {
	h := f.place.host.Swap(nil)
	if h == nil {
		return nil
	}
	name := h.host.name
	if g.guests[name] = slices.DeleteFunc(g.guests[name], func(guest *function) bool { return guest == f }); len(g.guests[name]) == 0 {
		delete(g.guests, name)
	}
	return h.host
}

// settle moves requests to where there are replicas. It is called after the replicas of a function have changed.
func (g *Gateway) settle(f *function) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	f.place.settle()
	for _, guest := range g.guests[f.name] {
		guest.place.settle()
	}
}

// settle moves the function's requests from a queue without replicas, its own or the host's, to the other queue if that has some. Requests stay in a
// queue that has replicas, which they were admitted for. The gateway's mutex is held.
func (p *place) settle() {
	f, h := p.of, p.host.Load()
	if h == nil {
		return
	}
	if h.phase == hostEnds && f.ready.Load() && p.host.CompareAndSwap(h, &hosting{h.host, hostLeft}) {
		h = p.host.Load()
	}
	switch here, there := f.ready.Load(), h.host.ready.Load(); {
	case !there && (here || h.phase != hostServes):
		move(f, h.host, f)
	case !here && there && h.phase != hostLeft:
		move(f, f, h.host)
	}
}

// move moves the waiting requests of a function from one queue to another.
func move(of, from, to *function) {
	if from == to {
		return
	}
	defer lockBoth(from, to)()
	for _, it := range takeOf(from, of) {
		to.accept(it)
	}
	to.dispatch()
}

// lockBoth locks the mutexes of two functions, always in the same order, so that no two calls wait for each other.
func lockBoth(first, second *function) (unlock func()) {
	if compareNames(first.name, second.name) > 0 {
		first, second = second, first
	}
	first.mu.Lock()
	second.mu.Lock()
	return func() {
		second.mu.Unlock()
		first.mu.Unlock()
	}
}

// accept puts an item that is in no queue into the function's. The mutexes of both functions are held, the item's previous and this one.
func (f *function) accept(it *item) {
	it.queue.Store(f)
	f.lastID++
	it.request.ID = f.lastID
	switch {
	case len(f.replicas) > 0:
		switch { // as for requests that were held
		case f.config.Hold.InTime:
			it.request.Deadline = it.due
		case !it.explicit():
			it.request.Deadline = time.Now().Add(it.timeout)
		}
		f.add(it)
	case f.backOff != nil:
		it.refuse(f.backOff.refusal())
	default:
		f.hold(it)
	}
}

// allows reports whether requests of the function may wait in the queue of f.
func (p *place) allows(f *function) bool {
	h := p.host.Load()
	return f == p.of || h != nil && h.host == f
}

// sendHome puts items that a replica of f had, which may no longer serve them, into the queues of their own functions.
func (f *function) sendHome(items []*item) {
	g := f.gateway
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, it := range items {
		unlock := lockBoth(f, it.of)
		if !it.gone {
			it.batch = nil
			it.of.count((*statistics).land)
			if g.functions[it.of.name] == it.of {
				it.of.accept(it)
				it.of.dispatch()
			} else {
				it.refuse(refuseDeleted)
			}
		}
		unlock()
		it.of.place.settle() // it may have another host
	}
}

// takeOf removes the waiting requests of a function from the queue of f and returns them, oldest first. The caller holds f's mutex.
func takeOf(f, of *function) (taken []*item) {
	f.held = slices.DeleteFunc(f.held, func(it *item) bool {
		if it.of != of {
			return false
		}
		it.held.Stop()
		taken = append(taken, it)
		return true
	})
	for id, it := range f.items {
		if it.of == of {
			f.queue.Remove(it.request)
			delete(f.items, id)
			taken = append(taken, it)
		}
	}
	slices.SortStableFunc(taken, func(a, b *item) int { return a.arrived.Compare(b.arrived) })
	return taken
}

// refuseReceived counts a request that has arrived completely but is refused because there is no room for its body.
func (p *place) refuseReceived() {
	queue, _ := p.lock()
	queue.rate.add(time.Now())
	queue.mu.Unlock()
	p.of.count(func(s *statistics) {
		s.receive()
		s.counts.Refused++
	})
}
