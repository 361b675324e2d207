package turns

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	api "github.com/gshare-dev/gshare/serving/api/v1alpha1"
	"github.com/gshare-dev/gshare/serving/fleet"
	"github.com/gshare-dev/gshare/serving/gateway"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
)

// mover loads functions by starting their servers, and evicts them by ending those. It is a swap.Mover.
type mover struct {
	platform fleet.Platform
	log      *slog.Logger
	ended    func(function string) // called when a loaded server has ended without having been evicted

	mu        sync.Mutex // guards what follows
	servers   map[string]*server
	instances map[string]*instance
	closing   bool
}

// server is the state of a function's server across its starts.
type server struct {
	object   *api.GPUFunction
	starts   uint64
	failures uint64
	failure  string        // why the last start failed; empty if it did not
	used     time.Duration // how long the instances that have ended ran
	current  *instance     // nil if the server does not run
}

// instance is one run of a server, from its start until nothing is left of it.
type instance struct {
	fleet.Instance
	function string
	began    time.Time
	address  string
	message  string        // what it waits for, or why it has failed
	ready    chan struct{} // closed when it accepts requests
	gone     chan struct{} // closed when nothing is left of it
	isReady  bool
	evicted  bool
}

func newMover(platform fleet.Platform, log *slog.Logger) *mover {
	return &mover{platform: platform, log: log, servers: map[string]*server{}, instances: map[string]*instance{}}
}

func (m *mover) add(function string, object *api.GPUFunction) {
	m.servers[function] = &server{object: object}
}

// Load implements swap.Mover. If the last server has failed, Load waits until it has ended: swap.Swap learns of the failure before mover has recorded it.
func (m *mover) Load(ctx context.Context, function, gpu string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, m.limitOf(function), errors.New("it was not ready in time"))
	defer cancel()
	if last := m.currentOf(function); last != nil {
		select {
		case <-last.gone:
		case <-ctx.Done():
		}
	}
	i, err := m.start(function)
	if err != nil {
		return err
	}
	m.log.Info("loading function", "function", function, "gpu", gpu, "replica", i.Name)
	select {
	case <-i.ready:
		return nil
	case <-i.gone:
	case <-ctx.Done():
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %s", context.Cause(ctx), i.message)
	}
	return errors.New(i.message)
}

// startLimit is the time within which a server has to be ready, including its wait for a share, in addition to what its startup probe allows.
const startLimit = 5 * time.Minute

// limitOf returns the time after which Load fails. The platform may fail the start earlier.
func (m *mover) limitOf(function string) time.Duration {
	limit := startLimit
	if p := m.servers[function].object.Container().StartupProbe; p != nil {
		limit += time.Duration(p.InitialDelaySeconds)*time.Second + api.StartLimit(p)
	}
	return limit
}

func (m *mover) currentOf(function string) *instance {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.servers[function].current
}

func (m *mover) start(function string) (*instance, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.servers[function]
	if m.closing || s.current != nil {
		return nil, errors.New("its last server has not ended yet")
	}
	s.starts++
	id := scaling.ID(s.starts)
	name := fleet.InstanceName(gateway.FunctionName{Namespace: s.object.Namespace, Name: s.object.Name}, id)
	i := &instance{
		Instance: fleet.Instance{Name: name, ID: id, Function: s.object, Share: wholeGPU(s.object), Residency: scaling.Hot}, function: function,
		began: time.Now(), ready: make(chan struct{}), gone: make(chan struct{}),
	}
	s.current, m.instances[name] = i, i
	m.platform.Create(i.Instance)
	return i, nil
}

// Evict implements swap.Mover.
func (m *mover) Evict(ctx context.Context, function, gpu string) error {
	m.mu.Lock()
	i := m.servers[function].current
	if i == nil {
		m.mu.Unlock()
		return nil
	}
	first := !i.evicted
	i.evicted = true
	m.mu.Unlock()
	if first {
		m.log.Info("evicting function", "function", function, "gpu", gpu, "replica", i.Name)
		m.platform.Delete(i.Name)
	}
	select {
	case <-i.gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// watch handles the events of the platform until ctx ends and nothing is left of any instance.
func (m *mover) watch(ctx context.Context) {
	stop := ctx.Done()
	for stop != nil || m.count() > 0 {
		select {
		case <-stop:
			stop = nil
		case e := <-m.platform.Events():
			m.observe(e)
		}
	}
}

func (m *mover) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.instances)
}

func (m *mover) observe(e fleet.Event) {
	m.mu.Lock()
	i := m.instances[e.Instance]
	if i == nil {
		m.mu.Unlock()
		return
	}
	switch e.Kind {
	case fleet.Ready:
		if i.address = e.Address; !i.isReady {
			i.isReady, m.servers[i.function].failure = true, ""
			close(i.ready)
		}
	case fleet.Failed, fleet.Gone:
		if i.isReady && !i.evicted { // before it is recorded here, as swap.Swap requires
			m.mu.Unlock()
			m.log.Warn("replica failed", "replica", i.Name, "reason", e.Message)
			m.ended(i.function)
			m.mu.Lock()
		}
		i.message = e.Message
		delete(m.instances, i.Name)
		m.servers[i.function].end(i)
		close(i.gone)
	default:
		i.message = e.Message
	}
	m.mu.Unlock()
}

// endAll ends all servers. From then on none is started.
func (m *mover) endAll() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closing = true
	for _, i := range m.instances {
		if !i.evicted {
			i.evicted = true
			m.platform.Delete(i.Name)
		}
	}
}

// end records that nothing is left of an instance.
func (s *server) end(i *instance) {
	s.current = nil
	s.used += time.Since(i.began)
	if !i.evicted {
		s.failures++
		s.failure = i.message
	}
}

// replicaOf returns the name and address of the current server of a function, empty if it has none.
func (m *mover) replicaOf(function string) (name, address string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := m.servers[function].current; i != nil {
		return i.Name, i.address
	}
	return "", ""
}

// state is what is known about the server of a function.
type state struct {
	starts, failures uint64
	used             time.Duration // total time for which it had a whole GPU
	ready, starting  bool
	message          string // what it waits for, or why the last start has failed
}

func (m *mover) stateOf(function string) state {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.servers[function]
	now := state{starts: s.starts, failures: s.failures, used: s.used, message: s.failure}
	if i := s.current; i != nil {
		now.used += time.Since(i.began)
		now.ready, now.starting = i.isReady && !i.evicted, !i.isReady
		if now.starting && i.message != "" {
			now.message = i.message
		}
	}
	return now
}
