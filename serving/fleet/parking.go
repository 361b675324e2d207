package fleet

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// parks reports whether an instance of the function is to be parked when it is not needed: it is ready, the function wants that, and no replica was
// found that cannot be parked.
func (fn *function) parks(id scaling.ID) bool {
	i := fn.instances[id]
	return fn.object.Spec.Scaling.KeepWarm != "" && !fn.object.InTurn() && fn.cannotPark == "" && i != nil && i.phase == ready && i.follower == 0 && !i.outdated
}

// serves reports whether the autoscaler counts an instance that gets requests, or will get them once it is ready.
func (fn *function) serves() bool {
	return slices.ContainsFunc(fn.state.Instances, func(i scaling.Instance) bool { return i.Residency <= scaling.Shared })
}

// park makes the autoscaler count an instance as Warm from a time on.
func (fn *function) park(id scaling.ID, now time.Duration) {
	fn.state.Instances = slices.Clone(fn.state.Instances)
	for at := range fn.state.Instances {
		if i := &fn.state.Instances[at]; i.ID == id {
			i.Residency, i.Since = scaling.Warm, now
		}
	}
}

// isParked reports whether the instance is parked, or is to be.
func (i *instance) isParked() bool {
	return i.phase == ready && i.wanted() == scaling.Warm
}

// keepUnparked notes that an instance cannot be parked. It is ended instead, and so will be the function's other instances when they are not needed.
func (f *Fleet) keepUnparked(i *instance, e Event) {
	fn := i.function
	fn.cannotPark = "replica " + i.Name + " " + e.Message
	f.log.Warn("replica cannot be parked", "replica", i.Name, "reason", e.Message)
	if i.isParked() {
		fn.state = fn.state.Without(i.ID)
		f.delete(i)
	}
	f.publish(fn)
}

// lose notes that a parked instance has failed. It is not started again, since it held nothing worth that.
func (f *Fleet) lose(i *instance, e Event) {
	fn := i.function
	fn.failures++
	f.log.Warn("parked replica failed", "replica", i.Name, "reason", e.Message)
	fn.state = fn.state.Without(i.ID)
	if e.Kind == Failed {
		f.remove(i)
		return
	}
	f.delete(i)
	f.publish(fn)
}
