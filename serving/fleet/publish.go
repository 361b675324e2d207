package fleet

import (
	"time"

	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// publish tells the gateway which instances of a function get requests, and whether the function is backing off. Instances that are being drained are
// listed, too, or the gateway would forget the requests that they have. Call it after each change of a phase.
func (f *Fleet) publish(fn *function) {
	var replicas []gateway.Replica
	for _, i := range fn.instances {
		r := gateway.Replica{ID: i.Name, Address: i.address, Residency: scaling.Cold, Credits: *fn.object.Spec.Scaling.Concurrency}
		switch i.phase {
		case ready:
			i.Residency = i.wanted()
			r.Residency = i.Residency
		case draining:
		default:
			continue
		}
		replicas = append(replicas, r)
	}
	if err := f.gateways.SetReplicas(fn.name, replicas); err != nil {
		f.log.Error("failed to set the replicas", "function", fn.name.String(), "error", err)
	}
	var until time.Time
	next, why := f.backOff(fn)
	if next != nil {
		until = time.Now().Add(next.retry - f.now())
	}
	f.gateways.SetBackOff(fn.name, until, why)
}

// backOff returns the instance of a function that will be created again first, and why the oldest one has failed. It returns nil if any instance is
// ready or starting, or none is wanted.
func (f *Fleet) backOff(fn *function) (next *instance, why string) {
	var oldest *instance
	for _, i := range fn.instances {
		switch {
		case i.phase == draining || i.phase == stopping:
			continue
		case i.phase != backingOff && i.phase != restarting:
			return nil, ""
		}
		if next == nil || i.retry < next.retry {
			next = i
		}
		if oldest == nil || i.ID < oldest.ID {
			oldest = i
		}
	}
	if next == nil {
		return nil, ""
	}
	return next, oldest.explained()
}
