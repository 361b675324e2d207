// Package turns serves functions that take turns on GPUs: each GPU runs one server at a time, which has all of it. Which function is loaded, and for
// how long it may answer requests while others wait, follows from the deadlines of the requests that wait at the gateway, by the rules of
// serving/rules/pipeline/residency. Loading a function means to start its server, and evicting it to end the server.
package turns

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/serving/rules/pipeline/residency"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/serving/swap"
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
	poll    = 10 * time.Millisecond  // time between two looks at the waiting requests
	idleEnd = 100 * time.Millisecond // time after which an unused turn ends, so that another function finds the GPU free
	// load is how long the first start of a server is assumed to take when it is weighed against deadlines.
	load = 2 * time.Second
)

// maxMove is longer than a server may take to start or to end.
const maxMove = 24 * time.Hour

const kind = "gpu" // the kind of all slices

// Turns serves functions. Run it once.
type Turns struct {
	Config
	swap  *swap.Swap
	moves *mover
	began time.Time

	mu        sync.Mutex // guards what follows
	functions []*function
	counted   time.Time // when the received requests were last counted
}

// function is a function and its turn.
type function struct {
	object   *api.GPUFunction
	name     gateway.FunctionName
	said     want     // what swap was last told about its waiting requests
	turn     *turn    // nil if it is not its turn
	received []uint64 // gateway.Load.Received at each of the last rateOver seconds, oldest first
}

// turn is the time for which a function has a GPU.
type turn struct {
	lease   residency.Lease
	replica string
	first   uint64    // value of the function begun when the turn began
	begun   uint64    // value of the function begun when the lease got its bound
	idle    time.Time // since when no request waits or is being answered
	ending  bool
}

// New returns Turns for functions, which have to be valid, and makes them known to the gateway.
func New(c Config, objects []*api.GPUFunction) (*Turns, error) {
	node, err := residency.New(residency.Policy{ColdAfter: 365 * 24 * time.Hour})
	if err != nil {
		return nil, err
	}
	for i := range c.GPUs {
		gpu := pipeline.Slice{ID: fmt.Sprintf("gpu%d", i), Kind: pipeline.Kind{Name: kind, Compute: 1, Memory: c.Memory}}
		if err := node.AddSlice(0, gpu); err != nil {
			return nil, err
		}
	}
	t := &Turns{Config: c, began: time.Now()}
	t.moves = newMover(c.Platform, c.Log)
	t.moves.ended = func(name string) { t.swap.Ended(name) }
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
		err := node.Register(residency.Function{ // all of the GPU's memory, so that no other server runs beside it
			Name: fn.name.String(), Tenant: object.Namespace, Memory: c.Memory, Times: map[string]time.Duration{kind: timeOfRequest(object)},
			LoadWarm: load, LoadCold: load,
		})
		if err != nil {
			return nil, fmt.Errorf("function %s: %w", fn.name, err)
		}
		g := fleet.GatewayFunction(object)
		g.Hold = gateway.Hold{InTime: true, Requests: fleet.MaxWaiting}
		if err := c.Gateway.SetFunction(g); err != nil {
			return nil, fmt.Errorf("function %s: %w", fn.name, err)
		}
		t.functions = append(t.functions, fn)
		t.moves.add(fn.name.String(), object)
	}
	t.swap = swap.New(swap.Config{
		Node: node, Mover: t.moves, Grant: t.grant, Log: c.Log,
		LoadLimit: maxMove, EvictLimit: maxMove, // instances have time limits of their own
		Save: func([]byte) error { return nil }, // nothing to restore: servers end with this process
	})
	return t, nil
}

// timeOfRequest returns how long a request takes if the server gets as many at once as it may.
func timeOfRequest(object *api.GPUFunction) time.Duration {
	s := object.Spec.Scaling
	return time.Duration(min(max(float64(*s.Concurrency)/s.RequestsPerSecond*float64(time.Second), 1), float64(time.Hour)))
}

// Run serves until ctx ends. Then it ends all servers and returns when nothing is left of them.
func (t *Turns) Run(ctx context.Context) {
	var all sync.WaitGroup
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	all.Go(func() { t.moves.watch(running) })
	all.Go(func() { t.swap.Run(ctx) })
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ticker.C:
		case <-t.Gateway.Waiting():
		case <-ctx.Done():
		}
		t.review()
	}
	t.moves.endAll()
	stop()
	all.Wait()
}

// review tells swap which requests wait, and ends turns that are over.
func (t *Turns) review() {
	for _, w := range t.look() { // look has released the lock: Want may wait for grant, which needs it
		t.swap.Want(w.function, w.due, w.requests)
	}
}

// want describes the waiting requests of a function.
type want struct {
	function string
	due      time.Time
	requests int
}

// look returns the functions whose waiting requests have changed, and ends turns that are over.
func (t *Turns) look() (changed []want) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.count(now)
	for _, fn := range t.functions {
		waiting, due := t.Gateway.Head(fn.name)
		if waiting == 0 {
			due = t.began
		}
		if w := (want{fn.name.String(), due, waiting}); w != fn.said {
			fn.said = w
			changed = append(changed, w)
		}
		if fn.turn != nil && !fn.turn.ending && t.isOver(fn, waiting, now) {
			t.end(fn)
		}
	}
	return changed
}

// isOver reports whether the turn of a function is over: it has had its requests or its time while another function waits, or it is unused.
func (t *Turns) isOver(fn *function, waiting int, now time.Time) bool {
	l, u := t.Gateway.Load(fn.name), fn.turn
	if waiting > 0 || l.InFlight > 0 {
		u.idle = time.Time{}
	} else if u.idle.IsZero() {
		u.idle = now
	}
	if u.lease.Requests == 0 {
		return !u.idle.IsZero() && now.Sub(u.idle) >= idleEnd
	}
	all := begun(l)
	isOver := t.swap.Now()+poll > u.lease.Until // it will be over at the next look
	return !u.idle.IsZero() || isOver && (all > u.first || waiting == 0) || all >= u.begun+uint64(u.lease.Requests)
}

// begun is the number of requests that a replica has got, or that have ended in another way.
func begun(l gateway.Load) uint64 { return l.Answered + l.Failed + l.Gone + uint64(l.InFlight) }

// end stops new requests of a turn from beginning. It gives the GPU back when the requests in progress have been answered, or after the function's
// grace period. In that case they are lost if another function is loaded.
func (t *Turns) end(fn *function) {
	fn.turn.ending = true
	number, replica := fn.turn.lease.Turn, fn.turn.replica
	drained := t.Gateway.StartDrain(fn.name, replica)
	go func() {
		grace := time.NewTimer(fn.object.Grace())
		defer grace.Stop()
		select {
		case <-drained:
		case <-grace.C:
			t.Log.Warn("replica did not answer its requests in time", "replica", replica)
		}
		t.swap.Finish(number)
	}()
}

// grant applies the present leases: functions with a lease get their requests served, others do not.
func (t *Turns) grant(leases []residency.Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	given := map[string]residency.Lease{}
	for _, l := range leases {
		given[l.Function] = l
	}
	for _, fn := range t.functions {
		l, has := given[fn.name.String()]
		switch {
		case !has && fn.turn != nil:
			fn.turn = nil
			t.setReplica(fn, nil)
		case has && (fn.turn == nil || fn.turn.lease.Turn != l.Turn):
			replica, address := t.moves.replicaOf(l.Function)
			before := begun(t.Gateway.Load(fn.name))
			fn.turn = &turn{lease: l, replica: replica, first: before, begun: before}
			t.setReplica(fn, nil) // without this, a replica that was drained would get no requests
			t.setReplica(fn, []gateway.Replica{{ID: replica, Address: address, Residency: scaling.Shared, Credits: *fn.object.Spec.Scaling.Concurrency}})
		case has:
			if fn.turn.lease.Requests == 0 {
				fn.turn.begun = begun(t.Gateway.Load(fn.name))
			}
			fn.turn.lease = l
		}
	}
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
