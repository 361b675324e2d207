package fleet

import (
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// hosting is what a function has to do with others that serve its requests, or whose requests it serves: gateway.Gateway.SetHost says how they go.
type hosting struct {
	host   gateway.FunctionName // no name without one
	ends   bool                 // the host is to serve on until the function has a replica that is ready
	alone  *scaling.Scaler      // of the function without a minimum, for while the host serves
	own    scaling.Rate         // of the function's own requests
	guests scaling.Rate         // of those of its guests
}

// SetHost lets another function, the host, have the replicas for the requests of a function, as the gateways have been or will be told: the host scales
// with the load of both, and the function has none. It keeps those that it has until one of the host's is ready. Without a host the function scales by
// itself again, and the host with the load of both until the function has one that is ready. It has no effect if the function is not known, or while the
// host is not, or may not serve its requests.
func (f *Fleet) SetHost(name, host gateway.FunctionName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn := f.byName[name]
	switch {
	case fn == nil:
	case host != gateway.FunctionName{}:
		fn.host, fn.ends = host, false
	case fn.host != gateway.FunctionName{}:
		fn.ends = true
	}
}

// hostOf returns the host of a function, nil if there is none. What is known of both is compared each time, as gateways do.
func (f *Fleet) hostOf(fn *function) *function {
	host := f.byName[fn.host]
	if host == nil || host == fn || host.removed || !host.object.MayServe(fn.object) {
		return nil
	}
	return host
}

// addGuest adds the load of a function to that of its host, if it has one.
func (f *Fleet) addGuest(fn *function) {
	host := f.hostOf(fn)
	if host == nil {
		return
	}
	if fn.ends && fn.hasReady() {
		fn.host, fn.ends = gateway.FunctionName{}, false
		return
	}
	host.guests += fn.own
}

// demand returns the rate that the replicas of a function are to answer, and the scaler that says how many.
func (f *Fleet) demand(fn *function) (scaling.Rate, *scaling.Scaler) {
	host := f.hostOf(fn)
	if host != nil && !fn.ends && (host.hasReady() || len(fn.state.Instances) == 0) {
		return fn.guests, fn.alone
	}
	return fn.own + fn.guests, fn.scaler
}

// hasReady reports whether a replica of the function is ready.
func (fn *function) hasReady() bool {
	for _, i := range fn.instances {
		if i.phase == ready {
			return true
		}
	}
	return false
}
