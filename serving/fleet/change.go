package fleet

import (
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/gshare-dev/gshare/serving/gateway"
	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/scaling"
)

// Existing is an instance that an earlier process has created.
type Existing struct {
	ID        scaling.ID
	Residency scaling.Residency // Hot or Shared
	Address   string            // host:port if it is ready, else empty
	Outdated  bool              // its share or template is not that of the function
}

// Set adds a function, which has to be valid, or changes it. What has been counted of its load goes on to count. Replicas of another share or
// template are replaced one by one: each is ended once another one is ready. After an error nothing has changed.
func (f *Fleet) Set(object *api.GPUFunction) error { return f.Restore(object, nil, nil) }

// Restore is Set for a function with instances that an earlier process has created, of which the platform reports events from now on, and with the
// numbers of requests that were received in each of the last seconds, oldest first. It ignores both for a function that is known.
func (f *Fleet) Restore(object *api.GPUFunction, existing []Existing, received []uint64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := gateway.FunctionName{Namespace: object.Namespace, Name: object.Name}
	fn := f.byName[name]
	added := fn == nil
	if added {
		fn = &function{name: name, instances: map[scaling.ID]*instance{}}
	}
	before := fn.object
	err := fn.configure(object)
	if err == nil {
		err = f.gateways.SetFunction(GatewayFunction(object))
	}
	if err != nil {
		if before != nil {
			return errors.Join(err, fn.configure(before))
		}
		return err
	}
	fn.removed = false
	if added {
		f.restore(fn, existing, received)
		f.functions, f.byName[name] = append(f.functions, fn), fn
	}
	f.publish(fn)
	return nil
}

// restore adds what an earlier process has left of a function.
func (f *Fleet) restore(fn *function, existing []Existing, received []uint64) {
	slices.SortFunc(existing, func(a, b Existing) int { return int(a.ID - b.ID) })
	for _, e := range existing {
		i := &instance{
			Instance: Instance{Name: InstanceName(fn.name, e.ID), ID: e.ID, Function: fn.object, Share: fn.object.Share(), Residency: e.Residency},
			function: fn, foreign: e.Outdated, phase: starting, created: time.Now(), reminder: time.Now().Add(firstReminder),
		}
		if e.Address != "" {
			i.phase, i.address, i.readySince = ready, e.Address, time.Now()
		}
		f.add(i)
		fn.state.Instances = append(fn.state.Instances, scaling.Instance{ID: e.ID, Configuration: fn.configuration, Residency: e.Residency, Since: f.now()})
		fn.state.LastID = e.ID
	}
	for n, count := range received {
		at := f.now() - time.Duration(len(received)-n)*period
		fn.state.Samples = append(fn.state.Samples, scaling.Sample{At: at, Load: scaling.Rate(float64(count) / period.Seconds())})
	}
}

// Has reports whether the fleet has a function that is not being removed.
func (f *Fleet) Has(name gateway.FunctionName) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn := f.byName[name]
	return fn != nil && !fn.removed
}

// Remove ends the replicas of a function, after their requests, and forgets it.
func (f *Fleet) Remove(name gateway.FunctionName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn := f.byName[name]
	if fn == nil || fn.removed {
		return
	}
	fn.removed = true
	fn.state = scaling.State{LastID: fn.state.LastID}
	for _, i := range fn.sorted() {
		f.delete(i)
	}
	if len(fn.instances) == 0 {
		f.forget(fn)
	}
}

func (f *Fleet) forget(fn *function) {
	f.gateways.RemoveFunction(fn.name)
	delete(f.byName, fn.name)
	f.functions = slices.DeleteFunc(f.functions, func(other *function) bool { return other == fn })
}

// replace starts an instance in place of one of another share or template, and reports whether it did anything. There is one replacement at a time,
// until nothing is left of what it replaces: so a specification that does not work costs no replica, and there is room for one more at most.
// Instances that are not ready are replaced at once.
func (f *Fleet) replace(fn *function) (changed bool) {
	for _, i := range fn.sorted() {
		if i.follower == 0 {
			continue
		}
		if fn.instances[i.follower] == nil { // was not needed any more
			f.delete(i)
		}
		return false
	}
	for _, i := range fn.sorted() {
		if !i.outdated() || i.follower != 0 || i.phase == draining || i.phase == stopping || fn.residency(i.ID) == scaling.Cold {
			continue
		}
		fn.state.LastID++
		id, r := fn.state.LastID, fn.residency(i.ID)
		fn.state = fn.state.Replace(i.ID, id, fn.configuration)
		i.follower = id
		f.log.Info("replace replica", "replica", i.Name, "by", InstanceName(fn.name, id))
		f.start(fn, id, r)
		if i.phase == ready {
			return true
		}
		f.delete(i)
		changed = true
	}
	return changed
}

// succeed ends the instances in whose place another one is ready now.
func (f *Fleet) succeed(by *instance) {
	for _, i := range by.function.sorted() {
		if i.follower == by.ID {
			f.delete(i)
		}
	}
}

// outdated reports whether the instance has another share or template than its function wants.
func (i *instance) outdated() bool {
	now := i.function.object
	return i.foreign || i.Share != now.Share() || i.Function != now && !equality.Semantic.DeepEqual(i.Function.Spec.Template, now.Spec.Template)
}
