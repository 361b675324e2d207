// Package peers tells a gateway which other gateways serve at present, and so which of them own a function: serving/rules/ownership has the rule.
//
// Which gateways exist, and where, is set from outside. Whether a gateway serves is found out by pings alone, so it is known within 0.4 s and depends
// on no third party. For a moment two gateways may come to different results.
package peers

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/ownership"
)

// Period is the time between two pings of a gateway. Silence is how long a gateway may answer none before it owns no functions until it answers
// again. It takes at most the sum of both to notice a gateway's failure.
const (
	Period  = 100 * time.Millisecond
	Silence = 300 * time.Millisecond
)

// Peers are the gateways of a cluster as seen by one of them. Its methods may be called concurrently.
type Peers struct {
	name      string
	transport http.RoundTripper
	log       *slog.Logger
	view      atomic.Pointer[View]
	answers   map[string]http.HandlerFunc // by path
	questions chan struct{}               // semaphore: one element for each question in progress

	mu      sync.Mutex // guards what follows
	others  map[string]*other
	counts  map[string]int // number of owners of the functions that have several
	leaving bool
	changed func()
}

// other is another gateway.
type other struct {
	name, address string
	pinging       bool
	answered      time.Time          // when the latest answered ping was sent
	live          *Peer              // nil while it owns nothing
	end           context.CancelFunc // ends Serving; not nil although live is nil while the gateway leaves
}

// Peer is another gateway during a time in which it serves without interruption.
type Peer struct {
	Name    string
	Address string          // host:port of its server for gateways
	Serving context.Context // ends when the gateway no longer answers pings, unless it has left in good order; then when its pod has ended
}

// NewTransport returns a transport for pings and questions over TLS. config has to connect to gateways only.
func NewTransport(config *tls.Config) *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: 1, TLSClientConfig: config.Clone(), TLSHandshakeTimeout: Silence}
}

// New returns the Peers of the gateway with this name, as yet without others. transport sends pings and questions, with the scheme https.
func New(name string, transport http.RoundTripper, log *slog.Logger) *Peers {
	p := &Peers{
		name: name, transport: transport, log: log, answers: map[string]http.HandlerFunc{}, questions: make(chan struct{}, maxQuestions),
		others: map[string]*other{}, counts: map[string]int{}, changed: func() {},
	}
	p.update()
	return p
}

// OnChange sets the function that is called after each change of View. Call it before Run.
func (p *Peers) OnChange(changed func()) { p.changed = changed }

// Set sets the other gateways, as addresses (host:port) by name. Gateways that stay keep their state.
func (p *Peers) Set(addresses map[string]string) {
	p.mu.Lock()
	for name, o := range p.others {
		if addresses[name] != o.address {
			o.giveUp()
			delete(p.others, name)
		}
	}
	for name, address := range addresses {
		if p.others[name] == nil && name != p.name {
			p.others[name] = &other{name: name, address: address}
		}
	}
	p.update()
	p.mu.Unlock()
	p.changed()
}

// giveUp takes all functions from a gateway, and the requests that it has.
func (o *other) giveUp() {
	if o.end != nil {
		o.end()
	}
	o.live, o.end = nil, nil
}

// Leave makes this gateway own nothing from now on. The others learn that from its answers to their next pings.
func (p *Peers) Leave() {
	p.mu.Lock()
	p.leaving = true
	p.update()
	p.mu.Unlock()
	p.changed()
}

// Run pings the others until ctx ends.
func (p *Peers) Run(ctx context.Context) {
	ticker := time.NewTicker(Period)
	defer ticker.Stop()
	for {
		p.check(ctx, time.Now())
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// check pings the others, and gives up those that have been silent too long. One that leaves is not among them: it closes its port to pings before it has
// answered the last requests. When it ends, its kernel closes the connections that they came on.
func (p *Peers) check(ctx context.Context, now time.Time) {
	p.mu.Lock()
	lost := false
	for _, o := range p.others {
		if o.live != nil && now.Sub(o.answered) > Silence {
			p.log.Warn("gateway does not answer", "gateway", o.name, "address", o.address)
			o.giveUp()
			lost = true
		}
		if !o.pinging {
			o.pinging = true
			go p.ping(ctx, o, now)
		}
	}
	if lost {
		p.update()
	}
	p.mu.Unlock()
	if lost {
		p.changed()
	}
}

// state is the answer to a ping.
type state struct {
	Gateway string         `json:"gateway"`          // the name of the gateway that answers
	Leaving bool           `json:"leaving"`          // it owns nothing any more
	Owners  map[string]int `json:"owners,omitempty"` // number of owners of the functions whose first owner it is, if there are several
}

// maxState bounds the answer to a ping, in bytes: a name and a number for each function that has several owners.
const maxState = 1 << 20

func (p *Peers) ping(ctx context.Context, o *other, now time.Time) {
	s, err := p.ask(ctx, o)
	p.mu.Lock()
	o.pinging = false
	changed := err == nil && p.others[o.name] == o && time.Since(now) <= Silence && p.heard(o, s, now)
	if changed {
		p.update()
	}
	p.mu.Unlock()
	if changed {
		p.changed()
	}
}

// ask returns the answer to a ping.
func (p *Peers) ask(ctx context.Context, o *other) (s state, err error) {
	ctx, cancel := context.WithTimeout(ctx, Silence)
	defer cancel()
	text, err := p.get(ctx, o.address, "/ping", maxState)
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, err
	}
	if s.Gateway != o.name {
		return s, errors.New("it is another gateway") // another gateway has this address by now
	}
	return s, nil
}

// heard applies a gateway's answer to a ping that was sent at a given time, and reports whether it changes anything. The caller holds the mutex.
func (p *Peers) heard(o *other, s state, sent time.Time) (changed bool) {
	o.answered = sent
	switch {
	case s.Leaving:
		if changed = o.live != nil; changed {
			p.log.Info("gateway leaves", "gateway", o.name)
		}
		o.live = nil // it still answers the requests that it has
	case o.live == nil:
		if o.end == nil {
			p.log.Info("gateway answers", "gateway", o.name, "address", o.address)
		} else {
			o.end() // the old one was leaving, so this is a new gateway of the same name
		}
		o.live, changed = &Peer{Name: o.name, Address: o.address}, true
		o.live.Serving, o.end = context.WithCancel(context.Background())
	}
	if changed {
		p.update()
	}
	if s.Leaving {
		return changed
	}
	v := p.view.Load()
	for f := range p.counts { // the gateway decides about those of which it is the first owner
		if _, several := s.Owners[f]; !several && v.Rank(f)[0] == o.name {
			delete(p.counts, f)
			changed = true
		}
	}
	for f, n := range s.Owners {
		if v.Rank(f)[0] == o.name && n > 1 && p.counts[f] != n {
			p.counts[f] = n
			changed = true
		}
	}
	return changed
}

// SetCount sets how many owners a function has, at least 1. It has no effect unless this gateway is the function's first owner.
func (p *Peers) SetCount(function string, owners int) {
	p.mu.Lock()
	v := p.view.Load()
	first := v.Rank(function)
	if len(first) == 0 || first[0] != p.name || owners == v.Count(function) {
		p.mu.Unlock()
		return
	}
	p.counts[function] = owners
	if owners <= 1 {
		delete(p.counts, function)
	}
	p.update()
	p.mu.Unlock()
	p.log.Info("number of gateways that own a function has changed", "function", function, "owners", owners)
	p.changed()
}

// ServeHTTP answers a ping of another gateway, or a question that it has sent by Ask.
func (p *Peers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/ping" {
		p.servePing(w)
	} else if answer := p.answers[r.URL.Path]; answer != nil {
		answer(w, r)
	} else {
		http.NotFound(w, r)
	}
}

func (p *Peers) servePing(w http.ResponseWriter) {
	v := p.view.Load()
	s := state{Gateway: p.name, Leaving: v.Leaving, Owners: map[string]int{}}
	for f, n := range v.counts {
		if ranked := v.Rank(f); len(ranked) > 0 && ranked[0] == p.name {
			s.Owners[f] = n
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(s) // fails only if the other gateway has gone
}

// View returns the present state.
func (p *Peers) View() *View { return p.view.Load() }

// update replaces the view. The caller holds the mutex.
func (p *Peers) update() {
	v := &View{Self: p.name, Leaving: p.leaving, peers: map[string]*Peer{}, counts: maps.Clone(p.counts)}
	if !p.leaving {
		v.names = append(v.names, p.name)
	}
	for name, o := range p.others {
		if o.live != nil {
			v.names = append(v.names, name)
			v.peers[name] = o.live
		}
	}
	slices.Sort(v.names)
	p.view.Store(v)
}

// View is the state of all gateways at one moment. It never changes.
type View struct {
	Self    string // name of the gateway that has this view
	Leaving bool   // it owns nothing any more
	names   []string
	peers   map[string]*Peer
	counts  map[string]int
}

// Rank returns the names of the gateways that serve, in the order in which they own a function. It is empty if this gateway is leaving and there is
// no other.
func (v *View) Rank(function string) []string { return ownership.Rank(function, v.names) }

// Count returns how many owners a function has if that many gateways serve, at least 1.
func (v *View) Count(function string) int { return max(v.counts[function], 1) }

// Peer returns another gateway that serves, or nil if the name is this gateway's or that of one that does not serve.
func (v *View) Peer(name string) *Peer { return v.peers[name] }
