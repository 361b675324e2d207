package controller

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// statusPeriod is the time between two looks at all functions.
const statusPeriod = time.Second

// Bounds of the work in one period, so that many functions leave enough of the API server to others: while 10,000 functions scale, the rest of the
// controller writes some 50 times a second, and all of it is to stay below 100. For every function with requests, the observed values (api.Observed)
// change a little each second. They are written in turn.
const (
	maxWrites   = 40  // objects written
	maxObserved = 20  // objects of those that are written only because observed values have changed
	maxCompared = 500 // functions whose observed values are compared

	// Pauses between attempts to write a status that the API server refuses, for example because the object is as large as an object may be. Without them,
	// a few such functions would take all the writes of each period.
	failedPauseMin = 2 * time.Second
	failedPauseMax = time.Minute
)

// statusWriter writes the status of the objects of functions.
type statusWriter struct {
	client    client.Client
	objects   func() map[gateway.FunctionName]*api.GPUFunction // of the cache, not to be changed
	fleet     *fleet.Fleet
	advisor   *fleet.Advisor
	functions *functions
	gateways  *Gateways
	log       *slog.Logger
	time      prometheus.Observer // time of the comparisons, without the writes; may be nil

	states  []fleet.Status // of the last period; the next one reuses the memory
	written map[gateway.FunctionName]time.Time
	settled map[gateway.FunctionName]statusInputs // inputs with which there was nothing to write at once
	turn    []gateway.FunctionName                // order in which observed values are compared next
	failed  map[gateway.FunctionName]pause        // functions whose last write failed
}

// statusInputs are the values from which a status follows, except the observed values. It has one field for each.
type statusInputs struct {
	version  string // resource version of the object
	known    known
	why      backOff
	running  bool // the fleet or the advisor has the function
	ready    bool
	reason   string
	message  string
	unparked string // why no replica is parked
	hot      int
	shared   int
	warm     int
	replicas int // ready ones
	share    share.Share
	host     string
	quota    string // why a policy keeps the function from growing
}

// period is what is known about all functions in one period.
type period struct {
	known     map[gateway.FunctionName]known
	states    map[gateway.FunctionName]*fleet.Status
	overQuota map[gateway.FunctionName]string // why a policy keeps a function from growing
}

func (p *period) inputsOf(name gateway.FunctionName, k known, object *api.GPUFunction, b backOff) statusInputs {
	i := statusInputs{version: object.ResourceVersion, known: k, why: b, quota: p.overQuota[name]}
	if s := p.states[name]; s != nil {
		i.running, i.ready, i.reason, i.message, i.unparked = true, s.Ready, s.Reason, s.Message, s.CannotPark
		i.hot, i.shared, i.warm, i.replicas, i.share = s.Hot, s.Shared, s.Warm, s.Replicas["ready"], s.Share
		i.host = s.Host.Name
	}
	return i
}

func (p *period) statusOf(name gateway.FunctionName, object *api.GPUFunction, b backOff) api.GPUFunctionStatus {
	return statusOf(object.Status, p.known[name], p.states[name], b, p.overQuota[name])
}

// Run writes the statuses that have changed, every second until ctx ends.
func (w *statusWriter) Run(ctx context.Context) {
	w.written, w.settled, w.failed = map[gateway.FunctionName]time.Time{}, map[gateway.FunctionName]statusInputs{}, map[gateway.FunctionName]pause{}
	ticker := time.NewTicker(statusPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			w.writeAll(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// statusWrite is a status that is to be written to an object.
type statusWrite struct {
	name   gateway.FunctionName
	object *api.GPUFunction
	status api.GPUFunctionStatus
}

// writeAll writes the most urgent changes. The rest follow in the next periods.
func (w *statusWriter) writeAll(ctx context.Context) {
	for _, one := range w.look() {
		w.written[one.name] = time.Now()
		before := statusAlone(one.object)
		changed := before.DeepCopy()
		changed.Status = one.status
		err := w.client.Status().Patch(ctx, changed, client.MergeFrom(before))
		if client.IgnoreNotFound(err) == nil {
			delete(w.failed, one.name)
		} else if ctx.Err() == nil {
			length := min(max(2*w.failed[one.name].length, failedPauseMin), failedPauseMax)
			w.failed[one.name] = pause{length, time.Now().Add(length)}
			w.log.Warn("failed to write status", "function", one.name.String(), "error", err)
		}
	}
}

// pauses reports whether the status of a function is not to be written yet, as that has failed.
func (w *statusWriter) pauses(name gateway.FunctionName) bool {
	return time.Now().Before(w.failed[name].until)
}

// statusAlone returns an object with only the status of f and what a patch of it needs: to find the differences, both versions are encoded as JSON.
func statusAlone(f *api.GPUFunction) *api.GPUFunction {
	return &api.GPUFunction{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: f.Name}, Status: f.Status}
}

// look returns what to write in this period, the most urgent first.
func (w *statusWriter) look() []statusWrite {
	defer observe(w.time, time.Now())
	w.states = w.fleet.StatusInto(w.states)
	p := &period{known: w.functions.all(), states: make(map[gateway.FunctionName]*fleet.Status, len(w.states)), overQuota: w.functions.pods.quotas.overQuota()}
	for _, states := range [][]fleet.Status{w.states, w.advisor.Status()} {
		for at := range states {
			p.states[states[at].Name] = &states[at]
		}
	}
	objects := w.objects()
	var writes []statusWrite
	there := 0
	for name, object := range objects {
		k, found := p.known[name]
		if !found {
			continue
		}
		there++
		b := w.gateways.backOff(name)
		before, seen := w.settled[name]
		inputs := p.inputsOf(name, k, object, b)
		if !seen {
			w.turn, w.settled[name] = append(w.turn, name), statusInputs{}
		}
		if inputs == before || len(writes) >= maxWrites || w.pauses(name) {
			continue
		}
		now := p.statusOf(name, object, b)
		if due(&object.Status, &now) == atOnce {
			writes = append(writes, statusWrite{name, object, now})
			w.settled[name] = statusInputs{} // compared again until the cache shows the write
		} else {
			w.settled[name] = inputs
		}
	}
	if there < len(w.settled) {
		w.forget(p.known)
	}
	return w.observed(writes, objects, p)
}

// observed adds writes for changed observed values to the urgent writes, as far as the bounds allow.
func (w *statusWriter) observed(writes []statusWrite, objects map[gateway.FunctionName]*api.GPUFunction, p *period) []statusWrite {
	room := min(maxObserved, maxWrites-len(writes))
	urgent := map[gateway.FunctionName]bool{}
	for _, one := range writes {
		urgent[one.name] = true
	}
	for looks := min(maxCompared, len(w.turn)); looks > 0 && room > 0; looks-- {
		name := w.turn[0]
		w.turn = w.turn[1:]
		object := objects[name]
		w.turn = append(w.turn, name)
		if _, found := p.known[name]; object == nil || !found || urgent[name] || w.pauses(name) || time.Since(w.written[name]) < observedPeriod {
			continue
		}
		now := p.statusOf(name, object, w.gateways.backOff(name))
		if due(&object.Status, &now) == later {
			writes = append(writes, statusWrite{name, object, now})
			room--
		}
	}
	return writes
}

// forget forgets the functions that no longer exist.
func (w *statusWriter) forget(all map[gateway.FunctionName]known) {
	gone := func(name gateway.FunctionName) bool { _, there := all[name]; return !there }
	maps.DeleteFunc(w.written, func(name gateway.FunctionName, _ time.Time) bool { return gone(name) })
	maps.DeleteFunc(w.failed, func(name gateway.FunctionName, _ pause) bool { return gone(name) })
	before := len(w.settled)
	maps.DeleteFunc(w.settled, func(name gateway.FunctionName, _ statusInputs) bool { return gone(name) })
	if len(w.settled) < before {
		w.turn = slices.DeleteFunc(w.turn, gone)
	}
}
