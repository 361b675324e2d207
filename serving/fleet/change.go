package fleet

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Existing is an instance that an earlier process has created.
type Existing struct {
	ID        scaling.ID
	Share     share.Share       // of each GPU, of which it has as many as the function's replicas; if the function has no such share, it counts as one with the function's own
	Residency scaling.Residency // Hot, Shared or Warm
	Address   string            // host:port if it is ready, else empty
	Outdated  bool              // its share or template differs from the function's
	Ending    bool              // it is to end, and gets no new requests
	// UnreadySince is when it stopped being ready. It is zero if it is ready or never was.
	UnreadySince time.Time
	// From is the existing instance that this one is to replace, as Move began. It is 0, or the ID of an instance that has ended, for all others.
	From scaling.ID
}

// Set adds or changes a function, which has to be valid. The counts of its load go on. Replicas with another share or template are replaced one at a
// time: each is ended once its replacement is ready. If Set fails, nothing has changed.
func (f *Fleet) Set(object *api.GPUFunction) error { return f.Restore(object, nil, nil) }

// Restore is Set for a function with instances that an earlier process has created. From now on the platform reports their events. received has the
// number of requests that came in each of the last seconds, oldest first. Both are ignored if the function is already known. No new instance gets the
// ID of an existing one.
func (f *Fleet) Restore(object *api.GPUFunction, existing []Existing, received []uint64) error {
	existing = slices.SortedFunc(slices.Values(existing), func(a, b Existing) int { return cmp.Compare(a.ID, b.ID) })
	for at, last := 0, scaling.ID(0); at < len(existing); at++ {
		if id := existing[at].ID; id <= last {
			return share.Invalid("existing", "ID %d follows %d: want different ones above 0", id, last)
		}
		last = existing[at].ID
	}
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
	for _, i := range fn.instances {
		i.outdated = i.foreign || i.differs()
	}
	fn.bound()
	f.publish(fn)
	return nil
}

// restore adds what an earlier process has left behind of a function.
func (f *Fleet) restore(fn *function, existing []Existing, received []uint64) {
	fn.addLoad(f.gateways.Load(fn.name)) // earlier requests are no load of the next second
	for _, e := range existing {
		if e.Residency != scaling.Shared && e.Residency != scaling.Warm {
			e.Residency = scaling.Hot
		}
		v, _ := fn.variantWith(e.Share)
		i := &instance{
			Instance: Instance{Name: InstanceName(fn.name, e.ID), ID: e.ID, Function: v.object, Share: v.configuration.Share, Residency: e.Residency},
			function: fn, foreign: e.Outdated, phase: starting, created: time.Now(), reminder: time.Now().Add(firstReminder),
		}
		if e.Address != "" || e.Residency == scaling.Warm {
			i.phase, i.address, i.readySince = ready, e.Address, time.Now()
		} else { // it may have requests nevertheless
			i.readySince, i.since = e.UnreadySince, e.UnreadySince
		}
		f.add(i)
		fn.state.LastID = e.ID
		if e.Ending {
			f.retire(i)
			continue
		}
		fn.state.Instances = append(fn.state.Instances, scaling.Instance{ID: e.ID, Configuration: v.configuration, Residency: e.Residency, Since: f.now()})
		f.goOn(i, e.From)
	}
	fn.goOnReplacing()
	fn.state.Samples = samplesOf(received, f.now())
}

// goOnReplacing continues the replacement that an earlier process has begun, see replace. Which instance replaces which is not recorded, so this is a
// guess: the oldest outdated one that is ready, and the youngest later one with its share that is up to date and has never been ready. If that one was
// created for other reasons, the autoscaler asks for one more.
func (fn *function) goOnReplacing() {
	var old, next *instance
	for _, i := range fn.sorted() {
		switch {
		case i.isFollowed(): // as part of a move
			return
		case fn.counted(i.ID) == nil: // it ends
		case i.foreign && i.phase == ready && !i.isParked() && old == nil:
			old = i
		case !i.foreign && i.phase == starting && i.readySince.IsZero() && old != nil && i.Residency == old.Residency && i.Share == fn.sameVariant(old).configuration.Share:
			next = i
		}
	}
	if next != nil {
		old.follower = next.ID
		fn.state = fn.state.Without(old.ID)
	}
}

// samplesOf returns samples for the seconds before now, oldest first.
func samplesOf(received []uint64, now time.Duration) []scaling.Sample {
	var samples []scaling.Sample
	for n, count := range received {
		at := now - time.Duration(len(received)-n)*period
		samples = append(samples, scaling.Sample{At: at, Load: scaling.Rate(float64(count) / period.Seconds())})
	}
	return samples
}

// Has reports whether the fleet has a function. One that is being removed counts until nothing is left of it.
func (f *Fleet) Has(name gateway.FunctionName) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.byName[name] != nil
}

// Remove ends the replicas of a function once they have answered their requests, and then forgets the function.
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

// bound reduces the instances that the autoscaler counts to as many as the function may have: those in reserve go first, then outdated ones if one
// that is up to date is ready, then the youngest.
func (fn *function) bound() {
	replaced := slices.ContainsFunc(fn.sorted(), func(i *instance) bool { return !i.outdated && i.phase == ready && fn.counted(i.ID) != nil })
	rank := func(id scaling.ID) int {
		if i := fn.instances[id]; replaced && i != nil && i.outdated {
			return 1
		}
		return 0
	}
	for len(fn.state.Instances) > *fn.object.Spec.Scaling.MaxReplicas {
		last := slices.MaxFunc(fn.state.Instances, func(a, b scaling.Instance) int {
			return cmp.Or(cmp.Compare(a.Residency, b.Residency), cmp.Compare(rank(a.ID), rank(b.ID)), cmp.Compare(a.ID, b.ID))
		})
		fn.state = fn.state.Without(last.ID)
	}
}

// replace starts an instance in place of one with an outdated share or template, and reports whether it did anything. Instances that are ready are
// replaced one after another: the next one's turn comes when nothing is left of the last, or that does not end. So a specification that does not work
// costs no replica, and at most one more instance needs room, besides those that still answer long requests while nobody waits for a share. Instances
// that are not ready are replaced at once, except for those that were ready a moment ago: many may miss a probe together because they are busy.
func (f *Fleet) replace(fn *function) (changed bool) {
	all, goesOn := fn.sorted(), false
	for _, i := range all {
		if i.holdsUp() {
			goesOn, changed = true, f.follow(i) || changed
		}
	}
	if goesOn {
		return changed
	}
	for _, i := range all {
		parked := i.isParked()
		stays := !i.outdated && (!parked || fn.object.Spec.Scaling.KeepWarm != "")
		if stays || i.phase == draining || i.phase == stopping || fn.residency(i.ID) == scaling.Cold || i.mayRecover() {
			continue
		}
		if parked { // a replacement would start only to be parked
			fn.state = fn.state.Without(i.ID)
			f.delete(i)
			changed = true
			continue
		}
		wasReady := i.phase == ready
		f.startInPlace(i, i.ID, fn.sameVariant(i))
		if wasReady {
			return true
		}
		f.delete(i)
		changed = true
	}
	return changed || f.enlarge(fn)
}

// follow looks after an instance that is being replaced, and reports whether it did anything. If the function has changed again, the replacement is
// outdated itself: another one is started in its place, or, if the first instance is up to date again, that one stays.
func (f *Fleet) follow(i *instance) (changed bool) {
	fn := i.function
	next := fn.instances[i.follower]
	switch {
	case next == nil: // the replacement was no longer needed
		f.retire(i)
		return false
	case !next.outdated || next.phase == ready:
		return false
	case i.outdated || i.phase == draining || i.phase == stopping:
		f.startInPlace(i, next.ID, fn.sameVariant(i))
	default:
		f.log.Info("keep replica", "replica", i.Name, "instead of", next.Name)
		v, _ := fn.variantWith(i.Share)
		fn.state = fn.state.Replace(next.ID, i.ID, v.configuration)
		i.follower, i.stays = 0, scaling.Hot
	}
	f.delete(next)
	return true
}

// sameVariant returns the variant for a replacement of the instance: the one with the same share, if there still is one.
func (fn *function) sameVariant(i *instance) variant {
	v, _ := fn.variantWith(i.Share)
	return v
}

// startInPlace starts an instance of a variant as the replacement of instance i. The autoscaler counts it in place of the instance with the ID counted.
func (f *Fleet) startInPlace(i *instance, counted scaling.ID, v variant) {
	fn := i.function
	fn.state.LastID++
	id := fn.state.LastID
	fn.state = fn.state.Replace(counted, id, v.configuration)
	i.follower = id
	f.log.Info("replace replica", "replica", i.Name, "by", InstanceName(fn.name, id))
	f.start(fn, id)
}

// refuse notes that there is no room to raise an instance, so that it stays Shared or Warm. If the autoscaler wants it to be Hot, another instance is
// started in its place, wherever there is room. Until that is ready, a Shared instance goes on serving, as well as it can. A Warm one would serve
// nothing but hold what its replacement may need, such as its part of a quota, so it is ended. A Warm instance that is wanted only in reserve counts
// as parked from now on: otherwise each such answer would make the fleet try to raise it again.
func (f *Fleet) refuse(i *instance, stays scaling.Residency) {
	i.Residency = stays
	wanted := i.function.residency(cmp.Or(i.follower, i.ID))
	if wanted == scaling.Hot || i.follower != 0 {
		i.stays = stays
	}
	if wanted == scaling.Hot && i.follower == 0 {
		f.startInPlace(i, i.ID, i.function.sameVariant(i))
	}
	switch {
	case stays < scaling.Warm:
	case i.follower != 0:
		f.delete(i)
	default:
		i.phase = ready // so that it can be woken; it may have been told to already
		i.function.park(i.ID, f.now())
	}
	f.publish(i.function)
}

// succeed ends the instances whose replacement, by, is now ready.
func (f *Fleet) succeed(by *instance) {
	for _, i := range by.function.sorted() {
		if i.follower == by.ID {
			f.retire(i)
		}
	}
	if by.Move.From != 0 {
		f.tell(by, Moved, "")
		by.Move = Move{}
	}
}

// differs reports whether the instance was made with a share, a number of GPUs, a template or a protocol that its function no longer wants. The
// protocol matters because it determines the readiness probe of a pod.
func (i *instance) differs() bool {
	now := i.function.object
	_, has := i.function.variantWith(i.Share)
	return !has || i.Function.GPUs() != now.GPUs() || i.Function.Spec.Protocol != now.Spec.Protocol || i.Function != now && !equality.Semantic.DeepEqual(i.Function.Spec.Template, now.Spec.Template)
}

// wanted returns the residency that the autoscaler wants of the instance. An instance that is being replaced has that of its replacement, if there is
// room for that; one that the autoscaler does not count keeps its own.
func (i *instance) wanted() scaling.Residency {
	if i.stays > scaling.Hot {
		return i.stays
	}
	r := i.function.residency(cmp.Or(i.follower, i.ID))
	if r == scaling.Cold {
		return i.Residency
	}
	return r
}
