// Package turns serves functions that take turns on GPUs: each GPU runs one server at a time, which has all of it. Which function is loaded, and for
// how long it may answer requests while others wait, follows from the requests that wait at the gateway, by the rules of vgpu/residency, as for class
// swap on a cluster. Loading a function means to start its server, and evicting it to end the server.
package turns

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/residency"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Gateway is the part of *gateway.Gateway that Turns needs.
type Gateway interface {
	SetFunction(gateway.Function) error
	SetReplicas(gateway.FunctionName, []gateway.Replica) error
	StartDrain(name gateway.FunctionName, replica string) <-chan struct{}
	Head(gateway.FunctionName) (waiting int, due time.Time)
	Load(gateway.FunctionName) gateway.Load
	Waiting() <-chan gateway.FunctionName
}

// Config configures Turns.
type Config struct {
	Gateway  Gateway
	Platform fleet.Platform
	GPUs     int         // number of whole GPUs, which nobody else uses
	Memory   share.Bytes // of each GPU
	Log      *slog.Logger
}

// Times that turns depend on.
const (
	poll = 10 * time.Millisecond // time between two looks at the waiting requests
	// idleEnd is how long a server without requests keeps its GPU while another function waits: the next request of a client may be on its way.
	idleEnd = 100 * time.Millisecond
	// startLimit is the time within which a server has to be ready, including its wait for a share, in addition to what its startup probe allows.
	startLimit = 5 * time.Minute
	// The pauses before a server that has failed is started again, the first and the longest.
	firstPause, longestPause = 500 * time.Millisecond, time.Minute
	// rateOver is the number of seconds over which fleet.Status.Rate is averaged.
	rateOver = 10
)

// Turns serves functions. Run it once.
type Turns struct {
	Config
	began time.Time

	mu        sync.Mutex // guards what follows
	functions []*function
	counted   time.Time // when the received requests were last counted
}

// function is a function and its server across the server's starts. Times count from Turns.began.
type function struct {
	object   *api.GPUFunction
	name     gateway.FunctionName
	received []uint64 // gateway.Load.Received at each of the last rateOver seconds, oldest first

	server   *server       // nil if none runs
	loading  time.Duration // how long the last start took until the server was ready
	used     time.Duration // when its last turn ended
	held     time.Duration // how long the servers that have ended had a GPU
	starts   uint64
	failures uint64
	failure  string        // why the last start failed; empty if it did not
	pause    time.Duration // after the last failure
	retry    time.Duration // when it may be started again
}

// server is one run of a function's server, from its start until nothing is left of it. A GPU belongs to it for that time.
type server struct {
	fleet.Instance
	stage   residency.Stage // Beginning, Serving or Leaving
	began   time.Duration
	since   time.Duration // when it entered the stage
	address string
	message string          // what it waits for
	drained <-chan struct{} // of a server that is Leaving: closed when it has answered its requests
	killAt  time.Duration   // when it is ended in any case
	ended   bool            // the platform has been told to end it
	next    *function       // whose turn comes after this one; nil if not decided
}

// New returns Turns for functions, which have to be valid, and makes them known to the gateway.
func New(c Config, objects []*api.GPUFunction) (*Turns, error) {
	t := &Turns{Config: c, began: time.Now()}
	for _, object := range objects {
		fn := &function{object: object, name: gateway.FunctionName{Namespace: object.Namespace, Name: object.Name}}
		if memory := object.Share().Memory; memory > c.Memory {
			return nil, fmt.Errorf("function %s wants %d MiB of a GPU that has %d MiB", fn.name, memory/share.MiB, c.Memory/share.MiB)
		}
		if object.GPUs() > 1 {
			return nil, fmt.Errorf("function %s: spec.resources.share.gpus is %d, and functions that have GPUs in turn have one each", fn.name, object.GPUs())
		}
		if object.Spec.Scaling.MinReplicas > 0 {
			return nil, fmt.Errorf("function %s: spec.scaling.minReplicas is %d, and none is kept where functions have GPUs in turn", fn.name, object.Spec.Scaling.MinReplicas)
		}
		g := fleet.GatewayFunction(object)
		g.Hold = gateway.Hold{InTime: true, Requests: fleet.MaxWaiting}
		if err := c.Gateway.SetFunction(g); err != nil {
			return nil, fmt.Errorf("function %s: %w", fn.name, err)
		}
		t.functions = append(t.functions, fn)
	}
	return t, nil
}

// Run serves until ctx ends. Then it ends all servers and returns when nothing is left of them.
func (t *Turns) Run(ctx context.Context) {
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			t.review()
		case <-t.Gateway.Waiting():
			t.review()
		case e := <-t.Platform.Events():
			t.observe(e)
		}
	}
	for t.endAll() {
		t.observe(<-t.Platform.Events())
	}
}

// review starts servers on free GPUs, and ends the turns that are over.
func (t *Turns) review() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count(time.Now())
	now := time.Since(t.began)
	var holders []*function
	waiting := map[string]*function{}
	var queue []residency.InTurn
	for _, fn := range t.functions {
		one := t.look(fn, now)
		switch {
		case fn.server != nil:
			holders = append(holders, fn)
		case one.Waiting > 0 && now >= fn.retry:
			waiting[one.ID], queue = fn, append(queue, one)
		}
	}
	bounds := t.bounds(waiting, len(holders))
	take := func(id string) *function { // takes a function off the queue
		queue = slices.DeleteFunc(queue, func(a residency.InTurn) bool { return a.ID == id })
		return waiting[id]
	}
	next := func() *function {
		id, _ := residency.NextTurn(now, queue, bounds)
		return take(id)
	}
	for _, fn := range holders {
		if fn.server.stage == residency.Leaving {
			t.finish(fn, now)
			if fn.server.next != nil {
				take(fn.server.next.name.String())
			}
		}
	}
	for range t.GPUs - len(holders) {
		if fn := next(); fn != nil {
			t.start(fn, now)
		}
	}
	slices.SortStableFunc(holders, func(a, b *function) int { return cmp.Compare(a.server.since, b.server.since) })
	for _, fn := range holders {
		if fn.server.stage == residency.Leaving {
			continue
		}
		one := t.look(fn, now)
		if one.Stage == residency.Beginning && now-one.Since >= bounds.Begin+one.Begin {
			fn.failed(now, "it was not ready in time: "+fn.server.message)
			t.leave(fn, now)
		} else if _, keeps := residency.NextTurn(now, append(slices.Clone(queue), one), bounds); !keeps {
			fn.server.next = next() // and not this one again, if its requests are due first
			t.leave(fn, now)
		}
	}
}

// look returns what the rules of turns have to know of a function.
func (t *Turns) look(fn *function, now time.Duration) residency.InTurn {
	waiting, due := t.Gateway.Head(fn.name)
	one := residency.InTurn{ID: fn.name.String(), Waiting: waiting, Used: max(1, fn.used)} // without requests it need not start
	if waiting > 0 {
		one.Due = due.Sub(t.began)
	}
	if s := fn.server; s != nil {
		one.Stage, one.Since, one.InFlight = s.stage, s.since, t.Gateway.Load(fn.name).InFlight
		if p := fn.object.Container().StartupProbe; p != nil {
			one.Begin = time.Duration(p.InitialDelaySeconds)*time.Second + api.StartLimit(p)
		}
	}
	return one
}

// bounds returns how long turns last while functions wait: so long that each of those that share a GPU is loaded and served once within the shortest
// objective among the waiting ones, but at least as long as loading takes, which would otherwise be most of what the GPUs do.
func (t *Turns) bounds(waiting map[string]*function, holders int) residency.TurnPolicy {
	var loading time.Duration
	objective := time.Duration(1<<63 - 1)
	for _, fn := range waiting {
		loading, objective = max(loading, fn.loading), min(objective, fn.object.Spec.SLO.Latency.Value())
	}
	turns := (holders + len(waiting) + t.GPUs - 1) / max(1, t.GPUs)
	return residency.TurnPolicy{
		For: max(objective/time.Duration(max(1, turns))-loading, loading, poll), Idle: idleEnd, Begin: startLimit, Start: 1<<63 - 1,
	}
}

// start starts the server of a function.
func (t *Turns) start(fn *function, now time.Duration) {
	fn.starts++
	id := scaling.ID(fn.starts)
	fn.server = &server{
		Instance: fleet.Instance{Name: fleet.InstanceName(fn.name, id), ID: id, Function: fn.object, Share: wholeGPU(fn.object), Residency: scaling.Hot},
		stage:    residency.Beginning, began: now, since: now,
	}
	t.Log.Info("loading function", "function", fn.name.String(), "replica", fn.server.Name)
	t.Platform.Create(fn.server.Instance)
}

// leave stops new requests of a server from beginning. The server is ended when it has answered those in progress, or after the function's grace
// period, in which case they are lost.
func (t *Turns) leave(fn *function, now time.Duration) {
	s := fn.server
	if s.stage == residency.Serving {
		s.drained, s.killAt = t.Gateway.StartDrain(fn.name, s.Name), now+fn.object.Grace()
	}
	s.stage, s.since = residency.Leaving, now
	t.finish(fn, now)
}

// finish ends a server that is Leaving, unless it still answers requests.
func (t *Turns) finish(fn *function, now time.Duration) {
	s := fn.server
	if s.ended {
		return
	}
	if s.drained != nil {
		select {
		case <-s.drained:
		default:
			if now < s.killAt {
				return
			}
			t.Log.Warn("replica did not answer its requests in time", "replica", s.Name)
		}
		t.setReplica(fn, nil)
	}
	s.ended = true
	t.Log.Info("evicting function", "function", fn.name.String(), "replica", s.Name)
	t.Platform.Delete(s.Name)
}

// observe handles an event of the platform.
func (t *Turns) observe(e fleet.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.functions, func(fn *function) bool { return fn.server != nil && fn.server.Name == e.Instance })
	if i < 0 {
		return
	}
	fn, now := t.functions[i], time.Since(t.began)
	s := fn.server
	switch e.Kind {
	case fleet.Ready:
		if s.stage != residency.Beginning {
			return
		}
		s.stage, s.since, s.address, s.message = residency.Serving, now, e.Address, ""
		fn.loading, fn.failure, fn.pause = now-s.began, "", 0
		t.setReplica(fn, nil) // without this, a replica that was drained would get no requests
		t.setReplica(fn, []gateway.Replica{{ID: s.Name, Address: s.address, Residency: scaling.Shared, Credits: *fn.object.Spec.Scaling.Concurrency}})
	case fleet.Failed, fleet.Gone:
		if s.stage != residency.Leaving {
			t.Log.Warn("replica failed", "replica", s.Name, "reason", e.Message)
			fn.failed(now, e.Message)
		}
		if s.stage == residency.Serving {
			t.setReplica(fn, nil)
		}
		fn.server, fn.used, fn.held = nil, now, fn.held+now-s.began
		if next := s.next; next != nil && next.server == nil && t.look(next, now).Waiting > 0 {
			t.start(next, now)
		}
	default:
		s.message = e.Message
	}
}

// failed records that a server has ended by itself, or has to be ended because it does not become ready.
func (fn *function) failed(now time.Duration, why string) {
	fn.failures++
	fn.failure = why
	fn.pause = min(max(2*fn.pause, firstPause), longestPause)
	fn.retry = now + fn.pause
}

// endAll ends all servers. It reports whether there are any.
func (t *Turns) endAll() (any bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, fn := range t.functions {
		if s := fn.server; s != nil {
			any, s.next = true, nil
			if !s.ended {
				s.stage, s.ended = residency.Leaving, true
				t.Platform.Delete(s.Name)
			}
		}
	}
	return any
}

func (t *Turns) setReplica(fn *function, replicas []gateway.Replica) {
	if err := t.Gateway.SetReplicas(fn.name, replicas); err != nil {
		t.Log.Error("cannot pass requests to a replica", "function", fn.name.String(), "error", err)
	}
}

// wholeGPU returns the share of a server: all the compute of a GPU, and the memory that its function wants.
func wholeGPU(object *api.GPUFunction) share.Share {
	return share.Share{
		SMRequest: share.Whole, SMLimit: share.Whole, QuotaRequest: share.Whole, QuotaLimit: share.Whole, Memory: cmp.Or(object.Share().Memory, share.MiB),
	}
}

// count records once a second how many requests each function has received.
func (t *Turns) count(now time.Time) {
	if now.Sub(t.counted) < time.Second {
		return
	}
	t.counted = now
	for _, fn := range t.functions {
		fn.received = append(fn.received, t.Gateway.Load(fn.name).Received)
		fn.received = fn.received[max(0, len(fn.received)-rateOver-1):]
	}
}

// rate returns how many requests per second came in the last rateOver seconds.
func (fn *function) rate() float64 {
	last := len(fn.received) - 1
	if last < 1 {
		return 0
	}
	return float64(fn.received[last]-fn.received[0]) / float64(last)
}

// Status returns the states of all functions, in order. A function has a replica while its server runs.
func (t *Turns) Status() []fleet.Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Since(t.began)
	var all []fleet.Status
	for _, fn := range t.functions {
		l := t.Gateway.Load(fn.name)
		s := fleet.Status{
			Name: fn.name, SLO: fn.object.Spec.SLO.Latency.Value(), P99: l.P99, Hit: float64(l.InTime) / float64(l.Answered+l.Refused-l.Invalid+l.Failed),
			Rate: fn.rate(), Share: wholeGPU(fn.object), Replicas: map[string]int{}, Reason: "Idle", Message: fn.failure,
			Waiting: l.Waiting, InFlight: l.InFlight, Starts: fn.starts, Failures: fn.failures, GPUTime: fn.held,
		}
		if fn.server != nil {
			s.GPUTime += now - fn.server.began
		}
		switch {
		case fn.server != nil && fn.server.stage == residency.Serving:
			s.Reason, s.Ready, s.Replicas["ready"] = "Serving", true, 1
		case fn.server != nil && fn.server.stage == residency.Beginning:
			s.Reason, s.Message, s.Replicas["starting"] = "Starting", cmp.Or(fn.server.message, fn.failure), 1
		case fn.failure != "":
			s.Reason = "Failing"
		case l.Waiting > 0:
			s.Reason = "Waiting"
		}
		all = append(all, s)
	}
	return all
}
