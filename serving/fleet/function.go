package fleet

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/serving/rules/scaling/pool"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// function is a function with the state of its autoscaler and its instances.
type function struct {
	object *api.GPUFunction
	name   gateway.FunctionName
	slo    time.Duration // of the object
	scaler *scaling.Scaler
	state  scaling.State
	counts []counters // the counters at the last ticks, oldest first

	instances map[scaling.ID]*instance // each until nothing is left of it
	byAge     []*instance              // the instances, oldest first; nil after they have changed
	removed   bool                     // its object is gone, and its instances are ending

	cannotPark string // why a replica could not be parked, after which none is parked any more; empty if they can be

	variants         []variant     // the variants that replicas are made of; the first is the function itself
	starts, failures uint64        // of replicas
	gpuTime          time.Duration // of the replicas that have ended

	short      string    // why it got no more replicas when requests were last refused, as the log says
	shortSince time.Time // when the log said so

	hosting
}

// variant is the function with one of the shares that its replicas may have.
type variant struct {
	object        *api.GPUFunction
	configuration scaling.Configuration
}

// configure applies a new object: from now on new replicas have its shares and its rates. After an error the function is unchanged.
func (fn *function) configure(object *api.GPUFunction) error {
	var variants []variant
	var choices []scaling.Configuration
	for _, v := range object.Variants() {
		c := scaling.Configuration{Share: v.Share(), Batch: 1, Throughput: scaling.Rate(v.Spec.Scaling.RequestsPerSecond)}
		variants, choices = append(variants, variant{v, c}), append(choices, c)
	}
	scaler, err := scaling.New(PolicyOf(object), choices)
	if err != nil {
		return err
	}
	without := PolicyOf(object)
	without.Min = 0
	alone, err := scaling.New(without, choices)
	if err != nil {
		return err
	}
	if fn.object == nil || !equality.Semantic.DeepEqual(fn.object.Spec, object.Spec) {
		fn.cannotPark = "" // parking is tried again, as the owner has changed something
	}
	sameGPUs := fn.object == nil || fn.object.GPUs() == object.GPUs()
	fn.object, fn.slo, fn.scaler, fn.alone, fn.variants = object, object.Spec.SLO.Latency.Value(), scaler, alone, variants
	for at := range fn.state.Instances { // instances with an outdated share or number of GPUs are replaced soon, and keep their rate until then
		i := &fn.state.Instances[at]
		if v, ok := fn.variantWith(i.Configuration.Share); ok && sameGPUs {
			i.Configuration = v.configuration
		}
	}
	return nil
}

// variantWith returns the variant with a share, or the function itself and false if there is none.
func (fn *function) variantWith(s share.Share) (variant, bool) {
	for _, v := range fn.variants {
		if v.configuration.Share == s {
			return v, true
		}
	}
	return fn.variants[0], false
}

// variantFor returns the variant for an instance that the autoscaler counts under an ID.
func (fn *function) variantFor(id scaling.ID) variant {
	if i := fn.counted(id); i != nil {
		v, _ := fn.variantWith(i.Configuration.Share)
		return v
	}
	return fn.variants[0]
}

// counted returns the instance that the autoscaler counts under an ID, or nil if it counts none. The autoscaler's instances are sorted by ID.
func (fn *function) counted(id scaling.ID) *scaling.Instance {
	all := fn.state.Instances
	at, found := slices.BinarySearchFunc(all, id, func(i scaling.Instance, id scaling.ID) int { return cmp.Compare(i.ID, id) })
	if !found {
		return nil
	}
	return &all[at]
}

// PolicyOf returns the scaling policy that a complete object asks for. Replicas of another autoscaler are all pods, whatever residency they have here: it
// would keep each one that is in reserve running.
func PolicyOf(object *api.GPUFunction) scaling.Policy {
	s := object.Spec.Scaling
	out, in := s.Votes()
	least, most := s.MinReplicas, *s.MaxReplicas
	if object.InTurn() { // a second replica would only take turns with the first
		least, most = min(least, 1), min(most, 1)
	}
	return scaling.Policy{
		Window: s.Window.Value(), Period: period, Out: out, In: in,
		Min: least, Max: most, SharedFor: s.KeepShared.Value(), Reserve: !object.External(), WarmFor: s.KeepWarm.Value(),
		Predict: scaling.Kalman, // a trend adds replicas that find nothing to do (docs/adr/0025)
	}
}

// occupied is the rate of a function that has requests in progress but gets no new ones: enough to keep one replica, and no more.
const occupied scaling.Rate = 0.0001

// rate returns how many requests per second arrived completely in the last second or, if the load does not know that, since the last tick. Requests
// that never arrive completely need no replica.
func (fn *function) rate(l gateway.Load) scaling.Rate {
	var before counters
	if n := len(fn.counts); n > 0 {
		before = fn.counts[n-1]
	}
	came := since(l.Received, before.received)
	if l.LastSecond.Known {
		came = l.LastSecond.Received
	}
	rate := scaling.Rate(float64(came) / period.Seconds())
	if l.Waiting+l.InFlight > 0 {
		rate = max(rate, occupied)
	}
	return rate
}

// work returns the load of the last period: what arrived, what holds places and waits, and what was answered and refused since the last tick.
func (fn *function) work(l gateway.Load) scaling.Load {
	now := scaling.Load{Rate: fn.rate(l), Busy: l.InFlight, Waiting: l.Waiting, Ready: l.Replicas, Starting: fn.starting()}
	if fn.object != nil && fn.object.Spec.Pipeline == nil { // a replica in parts has other places than its function says
		now.Places = *fn.object.Spec.Scaling.Concurrency * max(1, fn.object.Spec.Batching.MaxBatch)
	}
	if n := len(fn.counts); n > 0 {
		before := fn.counts[n-1]
		now.Finished = int(since(l.Answered, before.answered))
		now.Refused = int(since(l.Refused-l.Invalid, before.refused))
	}
	return now
}

// starting returns how many instances are going to get requests soon: those that start or wake, or may only have missed a probe. One that has failed
// more than once may never be ready again.
func (fn *function) starting() (n int) {
	for _, counted := range fn.state.Instances {
		i := fn.instances[counted.ID]
		switch {
		case i == nil || counted.Residency > scaling.Shared:
		case i.phase == starting && i.failures <= 1 && i.readySince.IsZero(), i.mayRecover(), i.phase == ready && i.Residency == scaling.Warm:
			n++
		}
	}
	return n
}

// since returns by how much a counter has grown, or 0 if it has fallen. A counter is the sum over several gateways. It falls when one of them is
// gone, and what the others had counted before is no load of the present.
func since(now, before uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}

// recent is the number of ticks that Status covers.
const recent = 10

// counters are the counters of the load that are kept at each tick.
type counters struct{ received, inTime, answered, refused, finished uint64 }

// addLoad adds the load at a tick. If a counter has fallen, the earlier ones say nothing about the time since and are dropped.
func (fn *function) addLoad(l gateway.Load) {
	now := counters{l.Received, l.InTime, l.Answered, l.Refused - l.Invalid, finished(l)}
	if n := len(fn.counts); n > 0 {
		if last := fn.counts[n-1]; now.received < last.received || now.inTime < last.inTime || now.finished < last.finished {
			fn.counts = fn.counts[:0]
		}
	}
	if fn.counts == nil {
		fn.counts = make([]counters, 0, recent+1)
	}
	if len(fn.counts) > recent {
		fn.counts = slices.Delete(fn.counts, 0, 1)
	}
	fn.counts = append(fn.counts, now)
}

// standing appends instances of the function in the form of package pool, at a given time. Among replicas in the same phase those go first that have no
// requests, and then those that the autoscaler has chosen: it is not known when a replica was last used.
func (fn *function) standing(have []pool.Instance, instances []*instance, now time.Duration, gateways Gateways) []pool.Instance {
	surplus := slices.ContainsFunc(instances, func(i *instance) bool { return i.phase == ready && fn.residency(i.ID) == scaling.Cold })
	for _, i := range instances {
		v, _ := fn.variantWith(i.Share)
		s := pool.Instance{ID: i.ID, Configuration: v.configuration, Phase: poolPhases[i.phase], Residency: fn.residency(i.ID)}
		if s.Residency == scaling.Cold {
			s.Residency, s.LastUsed = scaling.Shared, -1
			if i.phase == ready && i.Residency == scaling.Warm { // parked or being woken: worth no more than one that has failed, so it goes
				s.Phase = pool.Failed
			}
		}
		if surplus && i.phase == ready && gateways.IsBusy(fn.name, i.Name) {
			s.Residency, s.LastUsed = scaling.Hot, now
		}
		if s.Residency == scaling.Warm { // for the pool it exists; how it becomes Hot again is up to the autoscaler
			s.Residency = scaling.Shared
		}
		have = append(have, s)
	}
	return have
}

var poolPhases = map[phase]pool.Phase{
	starting: pool.Starting, ready: pool.Ready, backingOff: pool.Failed, restarting: pool.Failed, draining: pool.Draining, stopping: pool.Draining,
}

// residency returns the residency that the autoscaler wants of an instance, or Cold if it does not count it.
func (fn *function) residency(id scaling.ID) scaling.Residency {
	if i := fn.counted(id); i != nil {
		return i.Residency
	}
	return scaling.Cold
}

// instance is an instance of a function, from its creation until nothing is left of it. It has many fields because its whole life is one record.
type instance struct {
	Instance
	function *function
	foreign  bool              // an earlier process created it, from a specification other than Instance.Function
	outdated bool              // its share or template is not the one that the function wants
	follower scaling.ID        // the instance that is to replace this one, which ends once that is ready; 0 if none
	stays    scaling.Residency // Shared or Warm if there is no room for more: it stays so until it is replaced; else Hot

	phase      phase
	address    string
	message    string        // why it is not ready yet
	queued     bool          // as in Event
	created    time.Time     // when it was created last
	reminder   time.Time     // when the log says next that it is still starting
	readySince time.Time     // zero if its server has not been ready since it last started
	since      time.Time     // when it became unready, began to drain or began to stop
	failures   int           // consecutive failures
	retry      time.Duration // when it is created again, on the clock of Fleet.now
	stopDrain  context.CancelFunc
	hurry      *time.Timer // ends the wait for requests of an instance that nobody needs; nil if that is bounded by the grace period
	drainEnds  time.Time   // when hurry does so
}

// gpuTime returns for how long the instance has reserved GPU time until a given time, since it was last created: the elapsed time, times the part of
// a whole GPU that it reserves, times the number of its GPUs.
func (i *instance) gpuTime(until time.Time) time.Duration {
	if i.phase == backingOff {
		return 0
	}
	return time.Duration(float64(until.Sub(i.created)) * float64(i.Share.RequestArea()) * float64(i.Function.GPUs()) / float64(share.WholeArea))
}

// phase is the phase of an instance's life.
type phase string

const (
	starting   phase = "starting"
	ready      phase = "ready"
	backingOff phase = "failed"     // has failed and will be created again
	restarting phase = "restarting" // has failed, and the platform will start it again
	draining   phase = "draining"   // gets no new requests
	stopping   phase = "stopping"
)

// explained returns the message preceded by the name of the instance, as shown in the table and in refusals.
func (i *instance) explained() string { return i.Name + ": " + i.message }

// Recovery is how long an instance that is no longer ready is expected to be ready again.
const Recovery = time.Minute

// mayRecover reports whether the instance was ready a moment ago, and may only have been too busy to answer its probe.
func (i *instance) mayRecover() bool {
	return i.phase == starting && !i.readySince.IsZero() && time.Since(i.since) < Recovery
}

// overtime is how long an instance may take to end, beyond its grace period.
const overtime = time.Minute

// holdsUp reports whether the function's other instances are to wait until this one is replaced and nothing is left of it. They do not wait for long
// answers, nor for ever for one that does not end, for instance because its process hangs in the driver or its node is gone.
func (i *instance) holdsUp() bool {
	switch i.phase {
	case draining:
		return i.follower != 0 && time.Since(i.since) < i.Function.Grace()
	case stopping:
		return i.follower != 0 && time.Since(i.since) < i.Function.Grace()+overtime
	}
	return i.follower != 0
}

// maxPause is the longest pause before an instance that has failed is created again. An instance that has been ready for that long has its failures
// forgotten.
const maxPause = time.Minute

// fail notes that the instance has ended by itself and returns the pause before it is created again: none after the first failure, then 1 s, 2 s, 4 s
// and so on.
func (i *instance) fail(reason string) time.Duration {
	if i.phase == ready && time.Since(i.readySince) >= maxPause {
		i.failures = 0
	}
	i.phase, i.message = backingOff, reason
	i.failures++
	if i.failures == 1 {
		return 0
	}
	return min(period<<min(i.failures-2, 10), maxPause)
}
