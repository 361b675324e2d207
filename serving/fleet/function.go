package fleet

import (
	"cmp"
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/gshare-dev/gshare/serving/gateway"
	api "github.com/gshare-dev/gshare/vgpu/api/serving/v1alpha1"
	"github.com/gshare-dev/gshare/vgpu/scaling"
	"github.com/gshare-dev/gshare/vgpu/scaling/pool"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// function is a function with the state of its autoscaler.
type function struct {
	object *api.GPUFunction
	name   gateway.FunctionName
	slo    time.Duration // of the object
	scaler *scaling.Scaler
	state  scaling.State
	counts []counters // at the last ticks, oldest first

	instances map[scaling.ID]*instance // until nothing is left of them
	byAge     []*instance              // the instances, the oldest first; nil after a change of them
	removed   bool                     // its object is gone, and its instances are ending

	cannotPark string // which replica could not be parked; then none is any more

	variants         []variant     // of which replicas are made; the first is the function itself
	starts, failures uint64        // of replicas
	gpuTime          time.Duration // of replicas that have ended

	hosting
}

// variant is a function with one of the shares that its replicas may have.
type variant struct {
	object        *api.GPUFunction
	configuration scaling.Configuration
}

// configure takes over an object: new replicas have the shares and the rates that it says. After an error the function is unchanged.
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
		fn.cannotPark = "" // another try, with what the owner has changed
	}
	fn.object, fn.slo, fn.scaler, fn.alone, fn.variants = object, object.Spec.SLO.Latency.Value(), scaler, alone, variants
	for at := range fn.state.Instances { // those of another share are replaced soon, and keep their rate until then
		i := &fn.state.Instances[at]
		if v, ok := fn.variantWith(i.Configuration.Share); ok {
			i.Configuration = v.configuration
		}
	}
	return nil
}

// variantWith returns the variant of a share: the function itself, and false, if it has no such share.
func (fn *function) variantWith(s share.Share) (variant, bool) {
	for _, v := range fn.variants {
		if v.configuration.Share == s {
			return v, true
		}
	}
	return fn.variants[0], false
}

// variantFor returns the variant of which the instance is made that the autoscaler counts with an ID.
func (fn *function) variantFor(id scaling.ID) variant {
	if i := fn.counted(id); i != nil {
		v, _ := fn.variantWith(i.Configuration.Share)
		return v
	}
	return fn.variants[0]
}

// counted returns the instance that the autoscaler counts with an ID, nil if it counts none. Its instances are in the order of their IDs.
func (fn *function) counted(id scaling.ID) *scaling.Instance {
	all := fn.state.Instances
	at, found := slices.BinarySearchFunc(all, id, func(i scaling.Instance, id scaling.ID) int { return cmp.Compare(i.ID, id) })
	if !found {
		return nil
	}
	return &all[at]
}

// PolicyOf returns how a complete object wants its function to scale.
func PolicyOf(object *api.GPUFunction) scaling.Policy {
	s := object.Spec.Scaling
	out, in := s.Votes()
	least, most := s.MinReplicas, *s.MaxReplicas
	if object.InTurn() { // a second one would only take turns with the first
		least, most = min(least, 1), min(most, 1)
	}
	return scaling.Policy{
		Window: s.Window.Value(), Period: period, Out: out, In: in,
		Min: least, Max: most, SharedFor: s.KeepShared.Value(), WarmFor: s.KeepWarm.Value(),
		Predict: scaling.Kalman, // a trend adds replicas that find nothing to do (docs/adr/0025)
	}
}

// occupied is the rate of a function that has requests but gets no new ones: enough to keep a replica, and no more.
const occupied scaling.Rate = 0.0001

// rate returns the requests per second that have come whole in the last second, or since the last tick if the load does not say. Others need no replica.
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

// since returns by how much a counter has grown, 0 if it has fallen: it is the sum of what several gateways have counted, of which one is gone, and
// what the others had counted before is no load of now.
func since(now, before uint64) uint64 {
	if now < before {
		return 0
	}
	return now - before
}

// recent is the number of ticks that Status covers.
const recent = 10

// counters are what is kept of the load at a tick.
type counters struct{ received, inTime, finished uint64 }

// addLoad adds the load at a tick. When counters have fallen, those of before say nothing about the time since.
func (fn *function) addLoad(l gateway.Load) {
	now := counters{l.Received, l.InTime, finished(l)}
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

// standing appends instances of the function as package pool sees them. When a replica was last used is not known, so of replicas in the
// same phase those leave that the autoscaler has chosen.
func (fn *function) standing(have []pool.Instance, instances []*instance) []pool.Instance {
	for _, i := range instances {
		v, _ := fn.variantWith(i.Share)
		s := pool.Instance{ID: i.ID, Configuration: v.configuration, Phase: poolPhases[i.phase], Residency: fn.residency(i.ID)}
		if s.Residency == scaling.Cold {
			s.Residency, s.LastUsed = scaling.Shared, -1
			if i.phase == ready && i.Residency == scaling.Warm { // is parked, and no better than one that starts, or is being woken: it goes
				s.Phase = pool.Failed
			}
		}
		if s.Residency == scaling.Warm { // it is there: how it comes back is up to the autoscaler
			s.Residency = scaling.Shared
		}
		have = append(have, s)
	}
	return have
}

var poolPhases = map[phase]pool.Phase{
	starting: pool.Starting, ready: pool.Ready, backingOff: pool.Failed, restarting: pool.Failed, draining: pool.Draining, stopping: pool.Draining,
}

// residency returns the residency that the autoscaler wants of an instance, Cold for one that it does not know.
func (fn *function) residency(id scaling.ID) scaling.Residency {
	if i := fn.counted(id); i != nil {
		return i.Residency
	}
	return scaling.Cold
}

// instance is an instance of a function between its creation and its end.
type instance struct {
	Instance
	function *function
	foreign  bool              // created from another specification than Instance.Function, by an earlier process
	outdated bool              // has another share or template than its function wants
	follower scaling.ID        // the instance that replaces this one, which goes once that is ready; 0 if none
	stays    scaling.Residency // Shared or Warm: there is no room for more, and it stays so until it is replaced; Hot if there is

	phase      phase
	address    string
	message    string    // why it is not ready
	created    time.Time // the last time
	reminder   time.Time // when the log says next that it still starts
	readySince time.Time
	failures   int           // in a row
	retry      time.Duration // when it is created again, as Fleet.now
	stopDrain  context.CancelFunc
}

// gpuTime returns how long a whole GPU would have been reserved by the instance until a time, since it was created the last time.
func (i *instance) gpuTime(until time.Time) time.Duration {
	if i.phase == backingOff {
		return 0
	}
	return time.Duration(float64(until.Sub(i.created)) * float64(i.Share.RequestArea()) / float64(share.WholeArea))
}

// phase is what an instance does.
type phase string

const (
	starting   phase = "starting"
	ready      phase = "ready"
	backingOff phase = "failed"     // has failed and will be created again
	restarting phase = "restarting" // has failed, and the platform will start it again
	draining   phase = "draining"   // gets no new requests
	stopping   phase = "stopping"
)

// explained returns the message with the name of the instance, as the table and the answers to refused requests have it.
func (i *instance) explained() string { return i.Name + ": " + i.message }

// maxPause is the longest time until an instance that has failed is created again, and the time for which it has to be ready so that its
// failures are forgotten.
const maxPause = time.Minute

// fail notes that the instance has ended by itself and returns the pause before it is created again: none after the first failure, then 1, 2,
// 4 seconds and so on.
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
