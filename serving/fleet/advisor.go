package fleet

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// Advisor says how many replicas functions need that another autoscaler scales. It follows the rules of a Fleet, as if every replica that it wants
// existed at once, but starts and ends none. Its methods may be called concurrently.
type Advisor struct {
	load func(gateway.FunctionName) gateway.Load
	log  *slog.Logger

	mu        sync.Mutex // guards what follows, and the functions
	ticks     int        // periods since Run began
	functions map[gateway.FunctionName]*function
	changed   chan struct{} // closed, and replaced, when the answer for a function changes
}

// NewAdvisor returns an Advisor without functions. load returns the load of a function, with counters as Gateways describes them.
func NewAdvisor(load func(gateway.FunctionName) gateway.Load, log *slog.Logger) *Advisor {
	return &Advisor{load: load, log: log, functions: map[gateway.FunctionName]*function{}, changed: make(chan struct{})}
}

// Run decides each second until ctx ends. Call it once.
func (a *Advisor) Run(ctx context.Context) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			a.tick()
		case <-ctx.Done():
			return
		}
	}
}

func (a *Advisor) tick() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ticks++
	for _, fn := range a.functions {
		load := a.load(fn.name)
		now := fn.work(load)
		fn.addLoad(load)
		a.decide(fn, now)
	}
}

// Wake decides at once about a function that is to have no replicas and to which a request has come.
func (a *Advisor) Wake(name gateway.FunctionName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if fn := a.functions[name]; fn != nil && len(fn.state.Instances) == 0 {
		a.decide(fn, fn.work(a.load(name)))
	}
}

// decide decides about a function. The caller holds the lock.
func (a *Advisor) decide(fn *function, load scaling.Load) {
	rate := load.Rate
	before := len(fn.state.Instances)
	decisions, state, err := fn.scaler.Decide(a.now(), load, fn.state)
	if err != nil {
		a.log.Error("failed to scale", "function", fn.name.String(), "rate", float64(rate), "error", err)
		return
	}
	fn.state = state
	for _, d := range decisions {
		if d.Instance.Residency >= scaling.Warm {
			fn.state = fn.state.Without(d.Instance.ID)
		}
	}
	if now := len(fn.state.Instances); now != before {
		a.log.Info("function needs another number of replicas", "function", fn.name.String(), "replicas", now, "before", before, "load", float64(rate))
		a.announce()
	}
}

// announce tells those who wait that an answer may have changed. The caller holds the lock.
func (a *Advisor) announce() {
	close(a.changed)
	a.changed = make(chan struct{})
}

// Set adds or changes a function, which has to be valid. A function that is added is assumed to need as many replicas as get requests at present,
// until its load says otherwise. received has the number of requests in each of the last seconds, oldest first.
func (a *Advisor) Set(object *api.GPUFunction, received []uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := gateway.FunctionName{Namespace: object.Namespace, Name: object.Name}
	fn := a.functions[name]
	added := fn == nil
	if added {
		fn = &function{name: name}
	}
	if err := fn.configure(object); err != nil {
		return err
	}
	if added {
		now := a.load(name)
		fn.addLoad(now)
		for range now.Replicas {
			fn.state.LastID++
			fn.state.Instances = append(fn.state.Instances, scaling.Instance{ID: fn.state.LastID, Configuration: fn.variants[0].configuration, Since: a.now()})
		}
		fn.state.Samples = samplesOf(received, a.now())
		a.functions[name] = fn
	}
	fn.bound()
	a.announce()
	return nil
}

// now returns the time since Run began, in whole periods. The caller holds the lock.
func (a *Advisor) now() time.Duration { return time.Duration(a.ticks) * period }

// Remove forgets a function.
func (a *Advisor) Remove(name gateway.FunctionName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.functions[name] != nil {
		delete(a.functions, name)
		a.announce()
	}
}

// Wanted returns how many replicas a function needs, including those in reserve, and a channel that is closed when that may have changed. known is
// false for functions that Set has not added.
func (a *Advisor) Wanted(name gateway.FunctionName) (replicas int, known bool, changed <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	fn := a.functions[name]
	if fn == nil {
		return 0, false, a.changed
	}
	return len(fn.state.Instances), true, a.changed
}

// Status returns the states of all functions. A function's replicas are those that get requests, which count as Hot and ready.
func (a *Advisor) Status() []Status {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := make([]Status, 0, len(a.functions))
	for _, fn := range a.functions {
		all = append(all, a.statusOf(fn))
	}
	return all
}

func (a *Advisor) statusOf(fn *function) Status {
	now := a.load(fn.name)
	s := Status{
		Name: fn.name, SLO: fn.object.Spec.SLO.Latency.Value(), P99: now.P99, Hit: math.NaN(), Hot: now.Replicas, Replicas: map[string]int{string(ready): now.Replicas},
		Waiting: now.Waiting, InFlight: now.InFlight,
	}
	fn.observe(&s)
	wanted := len(fn.state.Instances)
	s.Ready = now.Replicas > 0 || wanted == 0
	switch {
	case now.Replicas > 0:
		s.Reason = "Serving"
	case wanted > 0:
		s.Reason, s.Message = "WaitsForAutoscaler", fmt.Sprintf("needs %d replicas, and no pod with the label %s=%s is Ready", wanted, api.LabelFunction, fn.name.Name)
	default:
		s.Reason = "Idle"
	}
	return s
}

var wantedDesc = prometheus.NewDesc("gshare_fleet_wanted_replicas", "Replicas that functions need which another autoscaler scales (scaling.autoscaler External).", labels, nil)

// Describe implements prometheus.Collector.
func (a *Advisor) Describe(c chan<- *prometheus.Desc) { c <- wantedDesc }

// Collect implements prometheus.Collector.
func (a *Advisor) Collect(c chan<- prometheus.Metric) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name, fn := range a.functions {
		c <- prometheus.MustNewConstMetric(wantedDesc, prometheus.GaugeValue, float64(len(fn.state.Instances)), name.Namespace, name.Name)
	}
}
