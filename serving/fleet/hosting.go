package fleet

import (
	"time"

	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// patience is how long a function waits until all the replicas that are to take over its requests are ready. After that one ready replica is enough,
// for instance because there is no room for all of them beside those that they replace.
const patience = 2 * time.Minute

// hostPause is how long after its start a fleet leaves a function without replicas alone if gateways name a host for it that the fleet does not know:
// Set may only not have added the host yet.
const hostPause = 15 * time.Second

// hosting is the relation of a function to its host, which serves its requests, and to its guests, whose requests it serves. gateway.Gateway.SetHost
// describes how the requests go.
type hosting struct {
	host   gateway.FunctionName // empty without a host
	hosted bool                 // gateways are to send the requests to the host
	ends   bool                 // the host serves on only until the function has its own replicas
	since  time.Duration        // when the host was set, or when its end began
	told   bool                 // SetHost has been called
	alone  *scaling.Scaler      // scaler without a minimum of replicas, for while the host serves
	own    scaling.Load         // of the function's own requests
	guests scaling.Load         // of its guests' requests
}

// SetHost makes another function, the host, provide the replicas for the requests of a function: the host scales with the load of both, and the
// function has none. The function keeps its replicas until the host has enough for both; Status.Host says from when requests are to go there. If host
// is empty, the function scales by itself again, and the host with the load of both until the function has its replicas. before is the Status.Host
// that gateways know from a fleet that has ended; it matters only in the first call. SetHost has no effect if the function is not known. A host has
// no effect while it is not known, or may not serve the function's requests.
func (f *Fleet) SetHost(name, host, before gateway.FunctionName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	none, fn := gateway.FunctionName{}, f.byName[name]
	if fn == nil {
		return
	}
	if !fn.told && before != none {
		fn.host, fn.hosted = before, true
	}
	fn.told = true
	switch {
	case host != none && fn.host != host:
		fn.host, fn.hosted, fn.ends, fn.since = host, false, false, f.now()
	case host != none:
		fn.ends = false
	case fn.host != none && !fn.ends:
		fn.ends, fn.since = true, f.now()
	}
}

// hostOf returns the host of a function, or nil if it has none that may serve it. The objects of both are compared each time, as gateways do.
func (f *Fleet) hostOf(fn *function) *function {
	if fn.host.Name == "" { // the usual case: no search for a host every second
		return nil
	}
	host := f.byName[fn.host]
	if host == nil || host == fn || host.removed || !host.object.MayServe(fn.object) {
		return nil
	}
	return host
}

// addGuest adds the load of a function that has a host to the host's. Once the replicas of the one that is to serve are ready, requests go there: to
// the host, or back to the function.
func (f *Fleet) addGuest(fn *function) {
	host := f.hostOf(fn)
	switch {
	case host == nil && !fn.ends:
		return
	case fn.ends && (host == nil || !fn.hosted || f.hasScaled(fn, fn.since)):
		fn.host, fn.hosted, fn.ends = gateway.FunctionName{}, false, false
		return
	case !fn.ends && (!fn.serves() || f.hasScaled(host, fn.since)):
		fn.hosted = true
	}
	host.guests = host.guests.Plus(fn.own)
}

// hasScaled reports whether a function has the replicas for a load that it has had since a given time: that load fills its whole window, and all
// replicas that it wants are ready. After patience one ready replica is enough.
func (f *Fleet) hasScaled(fn *function, since time.Duration) bool {
	past := f.now() - since
	if past >= patience {
		return fn.hasReady()
	}
	for _, i := range fn.state.Instances {
		if own := fn.instances[i.ID]; i.Residency == scaling.Hot && (own == nil || own.phase != ready) {
			return false
		}
	}
	return fn.hasReady() && past >= fn.object.Spec.Scaling.Window.Value()
}

// demand returns the load that the replicas of a function have to serve, and the scaler that decides how many it needs.
func (f *Fleet) demand(fn *function) (scaling.Load, *scaling.Scaler) {
	host := f.hostOf(fn)
	if fn.hosted && !fn.ends && f.byName[fn.host] == nil && !fn.serves() && f.now() < hostPause {
		return scaling.Load{}, fn.alone
	}
	if host != nil && fn.hosted && !fn.ends && (host.hasReady() || !fn.serves()) {
		guests := fn.guests
		guests.Places, guests.Ready, guests.Starting = fn.own.Places, fn.own.Ready, fn.own.Starting
		return guests, fn.alone
	}
	return fn.own.Plus(fn.guests), fn.scaler
}

// hasReady reports whether a replica of the function is ready and not parked.
func (fn *function) hasReady() bool {
	for _, i := range fn.instances {
		if i.phase == ready && !i.isParked() {
			return true
		}
	}
	return false
}
