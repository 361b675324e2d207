package kubernetes

import (
	"github.com/gshare-dev/gshare/serving/gateway"
)

// setHosts tells the gateway whose replicas serve the requests of a function, and of those that say that it is their host, after it has changed. The
// caller holds the mutex.
func (f *Functions) setHosts(changed *function) {
	f.setHost(changed)
	for _, fn := range f.functions {
		named := fn.object != nil && fn.name.Namespace == changed.name.Namespace && fn.object.Status.Host == changed.name.Name
		if fn != changed && (named || fn.last == changed.name) {
			f.setHost(fn)
		}
	}
}

// setHost tells the gateway the host of a function, if that is another than before.
func (f *Functions) setHost(fn *function) {
	if !fn.known {
		return
	}
	none := gateway.FunctionName{}
	if fn.last != none && !f.mayServe(fn.last, fn) { // at once: it may have another model by now
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

// hostOf returns the function that serves the requests of another one, no name if there is none. What the status says is checked, as it may be older than
// the specifications, or somebody else's: requests go to no other model.
func (f *Functions) hostOf(fn *function) (none gateway.FunctionName) {
	name := gateway.FunctionName{Namespace: fn.name.Namespace, Name: fn.object.Status.Host}
	if name.Name == "" || !f.mayServe(name, fn) {
		return none
	}
	return name
}

// mayServe reports whether a function may serve the requests of another one by the objects of both.
func (f *Functions) mayServe(host gateway.FunctionName, fn *function) bool {
	h := f.functions[host]
	return h != nil && h.known && h.object.MayServe(fn.object)
}
