// Package gateway passes requests to the replicas of functions so that they are answered in time.
//
// The host of a request names its function. A request has a deadline: its client's, or one that follows from the function's objective. A request that
// is predicted to miss its deadline is refused at once; the others wait, earliest deadline first, until a replica has a free credit. Replicas have no
// queues of their own: a replica gets at most as many requests at once as it has credits, so the gateway decides the order, and as late as possible.
// Requests to a function without replicas are held, up to a bound, until it has one, or refused while none is being started.
//
// serving/rules/batching has the rules of the queue, serving/oip those for joining requests into batches. This package connects them with HTTP and a clock.
package gateway

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gshare-dev/gshare/serving/gateway/http1"
	"github.com/gshare-dev/gshare/serving/gateway/peers"
	"github.com/gshare-dev/gshare/serving/rules/scaling"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// Config configures a Gateway.
type Config struct {
	// Upstream sends requests to replicas. If nil, it is an http1.Transport.
	Upstream http.RoundTripper
	// UpstreamGRPC sends gRPC calls to replicas. If nil, it is an http.Transport for HTTP/2 without TLS.
	UpstreamGRPC http.RoundTripper

	// Peers are the other gateways that serve the same functions: one gateway owns each function, and the others forward requests to it. If nil,
	// there are none. With peers, run RunPeers and PeerServer as well.
	Peers *peers.Peers
	// PeerTLS is for connections to other gateways: it must make the handshake with anyone else fail. If nil, all connections fail.
	PeerTLS *tls.Config
	// ToPeers and ToPeersGRPC send requests to other gateways, with the scheme https. If nil, they are http.Transports with PeerTLS.
	ToPeers, ToPeersGRPC http.RoundTripper

	Callers Callers      // finds out who calls; if nil, everyone may call every function
	Log     *slog.Logger // of requests, as debug events; none if nil
	Metrics prometheus.Registerer
}

// FunctionName identifies a function.
type FunctionName struct{ Namespace, Name string }

func (n FunctionName) String() string { return n.Namespace + "/" + n.Name }

// Function is what the gateway knows about a function. Fields that are zero take their defaults.
type Function struct {
	FunctionName
	// SLO is the time within which a request is to be answered if its client gives no deadline. Without an SLO such requests are served in order of
	// arrival, and given up after Timeout.
	SLO time.Duration
	// TimePerToken is the mean time between the tokens of a stream within which it is in time, besides SLO; only with the protocol OpenAI. The default
	// is any.
	TimePerToken time.Duration
	// Timeout is how long a request waits that has neither an objective nor a deadline of its client. It is also how long a replica may then take
	// until its answer begins, unless the client has given a deadline; the whole answer to a batch has to come within it. The default is 10 min.
	Timeout time.Duration

	Protocol Protocol
	MaxBatch int // most rows of a batch; above 1 only with the protocol OIP; default 1
	// Idempotent lets a request be sent to another replica if the one that had it broke off before it answered. Otherwise only requests for which
	// demands.repeatable is true are.
	Idempotent bool

	MaxQueued int         // most requests that wait at once; default 10,000
	MaxBytes  share.Bytes // most bytes of the bodies of all its requests at once; default 256 MiB
	MaxBody   share.Bytes // most bytes of the body of one request; default 64 MiB
	Hold      Hold

	// Aliases are names of the function besides its own in the bodies of requests; only with the protocol OpenAI.
	Aliases []string

	// Callers are the namespaces, besides the function's own, from which it may be called. Everybody stands for all of them.
	Callers []string
}

// Protocol is what a gateway has to know about the form of a function's requests.
type Protocol int

const (
	// HTTP is any HTTP: requests are passed on unchanged, one by one.
	HTTP Protocol = iota
	// OIP is the Open Inference Protocol: inference requests over REST or gRPC that fit together are sent as one batch.
	OIP
	// OpenAI is the protocol of OpenAI's chat completions: requests are passed on unchanged, and the beginning of the answer has to meet the
	// deadline: the first byte of its body or, in a stream, the first event with content. If the host names no function, the model in the body does.
	OpenAI
)

func (p Protocol) String() string {
	if p < HTTP || p > OpenAI {
		return fmt.Sprintf("Protocol(%d)", int(p))
	}
	return [...]string{"HTTP", "OIP", "OpenAI"}[p]
}

// Hold bounds how many requests wait for a function without replicas, and for how long.
type Hold struct {
	Requests int           // default 100
	For      time.Duration // default 60 s
	// InTime lets requests wait until their deadlines instead of For, for a function whose replicas take turns with those of others. The requests
	// keep their deadlines when it has replicas again. Without InTime, held requests are taken to have missed their objective in any case.
	InTime bool
}

func (f *Function) setDefaults() {
	orDefault(&f.Timeout, 10*time.Minute)
	orDefault(&f.MaxBatch, 1)
	orDefault(&f.MaxQueued, 10_000)
	orDefault(&f.MaxBytes, 256*share.MiB)
	orDefault(&f.MaxBody, 64*share.MiB)
	orDefault(&f.Hold.Requests, 100)
	orDefault(&f.Hold.For, time.Minute)
}

func orDefault[T comparable](value *T, standard T) {
	var zero T
	if *value == zero {
		*value = standard
	}
}

// maxMaxBatch bounds Function.MaxBatch.
const maxMaxBatch = 4096

func (f *Function) validate() error {
	for _, check := range []struct {
		field string
		ok    bool
	}{
		{"name", f.Name != "" && f.Namespace != ""},
		{"protocol", f.Protocol >= HTTP && f.Protocol <= OpenAI}, {"maxBatch", f.MaxBatch == 1 || f.MaxBatch > 1 && f.MaxBatch <= maxMaxBatch && f.Protocol == OIP},
		{"timePerToken", f.TimePerToken == 0 || f.TimePerToken > 0 && f.Protocol == OpenAI},
		{"slo", f.SLO >= 0}, {"timeout", f.Timeout > 0}, {"maxQueued", f.MaxQueued > 0}, {"maxBytes", f.MaxBytes > 0},
		{"maxBody", f.MaxBody > 0 && f.MaxBody <= f.MaxBytes}, {"hold.requests", f.Hold.Requests > 0}, {"hold.for", f.Hold.For > 0},
	} {
		if !check.ok {
			return share.Invalid(check.field, "of function %q is out of bounds", f.FunctionName)
		}
	}
	return nil
}

// Replica is a server that answers the requests of a function.
type Replica struct {
	ID        string
	Address   string // host:port
	Residency scaling.Residency
	Credits   int // most batches at once, or requests if there are no batches; default 1
	// Latency is the p99 of a request according to the profile; with the protocol OpenAI, until the answer begins. Measurements correct
	// it. If it is zero, it is learned from the first requests on.
	Latency time.Duration
	// BatchLatency is the p99 of a batch according to the profile. If set, it replaces Latency and is corrected in the same way; it must not fall
	// with the size of the batch. If it is nil, the latency of larger batches is learned.
	BatchLatency func(batch int) time.Duration
}

// Gateway is an http.Handler that passes requests to replicas. Its methods may be called concurrently.
type Gateway struct {
	upstream, upstreamGRPC http.RoundTripper
	toPeers, toPeersGRPC   http.RoundTripper
	peers                  *peers.Peers // nil if there are none

	callers Callers // nil: everybody may call
	log     *slog.Logger
	metrics *metrics
	waiting chan FunctionName
	bodies  bodies // read by findModel, until it is known that the caller may call the function
	kept    bodies // kept while other gateways have the requests
	streams streams

	allBodies bodies // of the functions of all namespaces

	mu sync.RWMutex // guards what follows
	known
}

// known are the functions of a gateway.
type known struct {
	functions map[FunctionName]*function
	models    map[FunctionName][]string    // functions with the protocol OpenAI, with their aliases
	aliases   map[alias][]FunctionName     // functions that have an alias; the first one gets the requests
	guests    map[FunctionName][]*function // by host: the functions that the host serves

	namespaces map[string]*bodies // bodies of the functions of each namespace
}

// New returns a gateway without functions.
func New(c Config) *Gateway {
	g := &Gateway{
		upstream: c.Upstream, upstreamGRPC: c.UpstreamGRPC, toPeers: c.ToPeers, toPeersGRPC: c.ToPeersGRPC, peers: c.Peers, callers: c.Callers,
		log: c.Log, metrics: newMetrics(c.Metrics),
		waiting: make(chan FunctionName, 1024),
		known: known{functions: map[FunctionName]*function{}, models: map[FunctionName][]string{}, aliases: map[alias][]FunctionName{},
			guests: map[FunctionName][]*function{}, namespaces: map[string]*bodies{}},

		allBodies: bodies{bound: maxAllBodies},
	}
	setTransport(&g.upstream, &http1.Transport{Others: newTransport()})
	setTransport(&g.upstreamGRPC, newTransportGRPC())
	setTransport(&g.toPeers, newPeerTransport(c.PeerTLS, false))
	setTransport(&g.toPeersGRPC, newPeerTransport(c.PeerTLS, true))
	if g.peers != nil {
		g.peers.OnChange(g.reroute)
	}
	if g.log == nil {
		g.log = slog.New(slog.DiscardHandler)
	}
	return g
}

func setTransport(transport *http.RoundTripper, standard http.RoundTripper) {
	if *transport == nil {
		*transport = standard
	}
}

// SetFunction adds or changes a function. Waiting requests keep their deadlines. The error is a *share.FieldError.
func (g *Gateway) SetFunction(f Function) error {
	f.setDefaults()
	if err := f.validate(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.setModel(f.FunctionName, &f)
	if old := g.functions[f.FunctionName]; old != nil {
		old.configure(f)
		return nil
	}
	g.functions[f.FunctionName] = newFunction(f, g)
	return nil
}

var refuseDeleted = newRefusal(causeUnknown, "the function has been deleted")

// RemoveFunction removes a function. Its waiting requests are refused; those that a replica has are answered. If the function is the host of others,
// their requests that wait in its queue move to the queues of their own functions.
func (g *Gateway) RemoveFunction(name FunctionName) {
	g.mu.Lock()
	f := g.functions[name]
	delete(g.functions, name)
	g.setModel(name, nil)
	guests := g.guests[name]
	delete(g.guests, name)
	g.forgetBodies()
	for _, guest := range guests {
		guest.place.host.Store(nil)
	}
	var host *function
	if f != nil {
		host = g.leaveHost(f)
	}
	g.mu.Unlock()
	if f == nil {
		return
	}
	for _, guest := range guests {
		move(guest, f, guest)
	}
	f.mu.Lock()
	f.refuseAll(refuseDeleted, func(*item) bool { return true })
	f.mu.Unlock()
	if host != nil {
		host.mu.Lock()
		for _, it := range takeOf(host, f) {
			it.refuse(refuseDeleted)
		}
		host.mu.Unlock()
	}
	f.count(func(s *statistics) { // requests of it may not have ended yet
		s.removed = true
		g.metrics.remove(name)
	})
}

// Functions returns the names of all functions, sorted.
func (g *Gateway) Functions() []FunctionName {
	g.mu.RLock()
	defer g.mu.RUnlock()
	var names []FunctionName
	for name := range g.functions {
		names = append(names, name)
	}
	slices.SortFunc(names, compareNames)
	return names
}

func (g *Gateway) function(name FunctionName) *function {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.functions[name]
}

// SetReplicas sets the replicas of a function that may get requests. Replicas that are no longer in the list get no new ones. It has no effect if the
// function is not known. The error is a *share.FieldError.
func (g *Gateway) SetReplicas(name FunctionName, replicas []Replica) error {
	seen := map[string]bool{}
	for _, r := range replicas {
		if r.ID == "" || r.Address == "" || seen[r.ID] || r.Credits < 0 || r.Latency < 0 {
			return share.Invalid("replicas", "%q at %q of function %s: want different IDs, an address, and no negative values", r.ID, r.Address, name)
		}
		seen[r.ID] = true
	}
	if f := g.function(name); f != nil {
		f.setReplicas(replicas)
		g.settle(f)
	}
	return nil
}

// SetBackOff makes the gateway refuse requests to a function that has no replicas instead of holding them, unless they may wait for longer than until a
// replica will be started again: those that wait now and those that come. They still count as load. The answer gives the reason why, shortened and
// escaped, and the time left. A zero time lets all requests wait for a replica again. It has no effect if the function is not known.
func (g *Gateway) SetBackOff(name FunctionName, until time.Time, why string) {
	f := g.function(name)
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if until.IsZero() {
		f.backOff = nil
		return
	}
	f.backOff = &backOff{until, why}
	if len(f.replicas) == 0 {
		f.refuseAll(f.backOff.refusal(), f.backOff.outlasts)
	}
}

// Drain stops sending new requests to a replica and returns when it has answered those that it has, or with the error of ctx. SetReplicas does not
// end the drain, even if the replica is in its list.
func (g *Gateway) Drain(ctx context.Context, name FunctionName, replica string) error {
	select {
	case <-g.StartDrain(name, replica):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// StartDrain stops sending new requests to a replica, as Drain does, and returns a channel that is closed when it has answered those that it has,
// even if a later SetReplicas does not list the replica. If it then gets requests again, the channel is closed as soon as it has none.
func (g *Gateway) StartDrain(name FunctionName, replica string) <-chan struct{} {
	f := g.function(name)
	if f == nil {
		done := make(chan struct{})
		close(done)
		return done
	}
	defer g.settle(f)
	return f.drain(replica)
}

// IsBusy reports whether Busy has a replica.
func (g *Gateway) IsBusy(name FunctionName, replica string) bool {
	return slices.Contains(g.Busy(name), replica)
}

// Busy returns the replicas that have requests of this gateway and are not draining, in alphabetical order.
func (g *Gateway) Busy(name FunctionName) (all []string) {
	f := g.function(name)
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.all {
		if len(r.flights) > 0 {
			all = append(all, r.ID)
		}
	}
	slices.Sort(all)
	return all
}

// Waiting returns a channel that receives the name of a function when a request to it comes while it has no replica.
func (g *Gateway) Waiting() <-chan FunctionName { return g.waiting }

func (g *Gateway) notifyWaiting(name FunctionName) {
	select {
	case g.waiting <- name:
	default: // the reader is far behind, and will find the request in Load
	}
}
