package kubernetes

import (
	"github.com/gshare-dev/gshare/serving/gateway"
)

// setHosts tells the gateway which host serves the requests of a function that has changed, and of the functions whose host it is. The caller holds
// the mutex.
func (f *Functions) setHosts(changed *function) {
	f.setHost(changed)
	for _, fn := range f.functions {
		named := fn.object != nil && fn.name.Namespace == changed.name.Namespace && fn.object.Status.Host == changed.name.Name
		if fn != changed && (named || fn.last == changed.name) {
			f.setHost(fn)
		}
	}
}

// setHost tells the gateway the host of a function if it has changed.
func (f *Functions) setHost(fn *function) {
	if !fn.known {
		return
	}
	none := gateway.FunctionName{}
	if fn.last != none && !f.mayServe(fn.last, fn) { // at once, since the host may have another model by now
		f.gateway.DropHost(fn.name)
		fn.host, fn.last = none, none
	}
	host := f.hostOf(fn)
	if host == fn.host {
		return
	}
	if err := f.gateway.SetHost(fn.name, host); err != nil {
		f.log.Error("failed to set the host", "function", fn.name.String(), "error", err)
		return
	}
	if fn.host = host; host != none {
		fn.last = host
	}
	f.log.Info("host of function has changed", "function", fn.name.String(), "host", host.Name)
}

// hostOf returns the function that serves the requests of another one, or an empty name if there is none. The status that names it is checked, as it
// may be older than the specifications or have been written by somebody else: requests must not go to another model.
func (f *Functions) hostOf(fn *function) (none gateway.FunctionName) {
	name := gateway.FunctionName{Namespace: fn.name.Namespace, Name: fn.object.Status.Host}
	if name.Name == "" || !f.mayServe(name, fn) {
		return none
	}
	return name
}

// mayServe reports whether, according to the objects of both, the function host may serve the requests of fn.
func (f *Functions) mayServe(host gateway.FunctionName, fn *function) bool {
	h := f.functions[host]
	return h != nil && h.known && h.object.MayServe(fn.object)
}
