package fleet

import (
	"time"

	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// patience is how long a function waits for all the replicas that are to take over its requests: then one has to do, such as when there is no room for
// them beside those that they replace.
const patience = 2 * time.Minute

// hostPause is how long a fleet that begins waits for the host that gateways know of a function without replicas: it may only not have been set yet.
const hostPause = 15 * time.Second

// hosting is what a function has to do with others that serve its requests, or whose requests it serves: gateway.Gateway.SetHost says how they go.
type hosting struct {
	host   gateway.FunctionName // no name without one
	hosted bool                 // requests go to the host, by what gateways are to be told
	ends   bool                 // the host is to serve on until the function has its replicas
	since  time.Duration        // when the host was set, or its end
	told   bool                 // SetHost was called
	alone  *scaling.Scaler      // of the function without a minimum, for while the host serves
	own    scaling.Rate         // of the function's own requests
	guests scaling.Rate         // of those of its guests
}

// SetHost lets another function, the host, have the replicas for the requests of a function: the host scales with the load of both, and the function has
// none. It keeps those that it has until the host has its own for both: Status.Host says when requests are to go there. Without a host the function
// scales by itself again, and the host with the load of both until the function has its replicas. before is the Status.Host that gateways know, from a
// fleet that has ended; it counts the first time. SetHost has no effect if the function is not known, or while the host is not, or may not serve its
// requests.
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

// hostOf returns the host of a function, nil if there is none. What is known of both is compared each time, as gateways do.
func (f *Fleet) hostOf(fn *function) *function {
	if fn.host.Name == "" { // as most have none, without a search for it each second
		return nil
	}
	host := f.byName[fn.host]
	if host == nil || host == fn || host.removed || !host.object.MayServe(fn.object) {
		return nil
	}
	return host
}

// addGuest adds the load of a function to that of its host, if it has one, and lets requests go to the other of the two once that one has its replicas.
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
	host.guests += fn.own
}

// hasScaled reports whether a function has the replicas for a load that it has since some time: its window is full of that, and all that it wants are
// ready. Once patience is over, one is enough.
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

// demand returns the rate that the replicas of a function are to answer, and the scaler that says how many.
func (f *Fleet) demand(fn *function) (scaling.Rate, *scaling.Scaler) {
	host := f.hostOf(fn)
	if fn.hosted && !fn.ends && f.byName[fn.host] == nil && !fn.serves() && f.now() < hostPause {
		return 0, fn.alone
	}
	if host != nil && fn.hosted && !fn.ends && (host.hasReady() || !fn.serves()) {
		return fn.guests, fn.alone
	}
	return fn.own + fn.guests, fn.scaler
}

// hasReady reports whether a replica of the function is ready to serve: a parked one is not.
func (fn *function) hasReady() bool {
	for _, i := range fn.instances {
		if i.phase == ready && !i.isParked() {
			return true
		}
	}
	return false
}
