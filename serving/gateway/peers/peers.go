// Package peers lets a gateway know which other gateways serve at this moment, and so which of them own a function: vgpu/ownership has the rule.
//
// Somebody else says which gateways there are and where. Whether one serves is found out by pings alone, so it is known within 0.4 s and does not
// depend on anybody else. Two gateways may come to different results for a moment.
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

	"github.com/gshare-dev/gshare/vgpu/ownership"
)

// Period is the time between two pings of a gateway, and Silence how long one may answer none of them until it owns no functions: until it
// answers again. The longest that it takes to notice it is their sum.
const (
	Period  = 100 * time.Millisecond
	Silence = 300 * time.Millisecond
)

// Peers are the gateways of a cluster as one of them sees them. Its methods may be called concurrently.
type Peers struct {
	name      string
	transport http.RoundTripper
	log       *slog.Logger
	view      atomic.Pointer[View]
	answers   map[string]http.HandlerFunc // by path
	questions chan struct{}               // has an element for each that is being asked

	mu      sync.Mutex // guards what follows
	others  map[string]*other
	counts  map[string]int // owners of the functions that have several
	leaving bool
	changed func()
}

// other is another gateway.
type other struct {
	name, address string
	pinging       bool
	answered      time.Time // when the last ping was sent that it has answered
	live          *Peer     // nil while it owns nothing
	end           context.CancelFunc
}

// Peer is another gateway for the time for which it serves without a break.
type Peer struct {
	Name    string
	Address string          // host:port, of its port for gateways
	Serving context.Context // ends when it does not answer pings any more; not if it ends in good order
}

// NewTransport returns a transport for pings and questions, over TLS with a configuration that connects to gateways only.
func NewTransport(config *tls.Config) *http.Transport {
	return &http.Transport{MaxIdleConnsPerHost: 1, TLSClientConfig: config.Clone(), TLSHandshakeTimeout: Silence}
}

// New returns a gateway with a name and without others. transport sends pings and questions, whose scheme is https.
func New(name string, transport http.RoundTripper, log *slog.Logger) *Peers {
	p := &Peers{
		name: name, transport: transport, log: log, answers: map[string]http.HandlerFunc{}, questions: make(chan struct{}, maxQuestions),
		others: map[string]*other{}, counts: map[string]int{}, changed: func() {},
	}
	p.update()
	return p
}

// OnChange sets what is called after each change of View. Call it before Run.
func (p *Peers) OnChange(changed func()) { p.changed = changed }

// Set sets the other gateways, as addresses (host:port) by name. Those that were there before are pinged on.
func (p *Peers) Set(addresses map[string]string) {
	p.mu.Lock()
	for name, o := range p.others {
		if addresses[name] != o.address {
			o.leave(true)
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

// leave lets a gateway own nothing. lost says that it does not answer what it has.
func (o *other) leave(lost bool) {
	if lost && o.end != nil {
		o.end()
		o.end = nil
	}
	o.live = nil
}

// Leave lets this gateway own nothing from now on. The others learn it by their next pings.
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

// check pings the others, and gives up those that have been silent for too long.
func (p *Peers) check(ctx context.Context, now time.Time) {
	p.mu.Lock()
	lost := false
	for _, o := range p.others {
		if o.end != nil && now.Sub(o.answered) > Silence {
			if o.live == nil {
				p.log.Info("gateway has ended", "gateway", o.name)
			} else {
				p.log.Warn("gateway does not answer", "gateway", o.name, "address", o.address)
			}
			o.leave(true)
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
	Gateway string         `json:"gateway"`          // its name
	Leaving bool           `json:"leaving"`          // it owns nothing any more
	Owners  map[string]int `json:"owners,omitempty"` // of the functions of which it is the first owner, if there are several
}

// Bounds of an answer to a ping, in bytes: a name and a number of each function that has several owners.
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
		return s, errors.New("it is another gateway") // that has got the address
	}
	return s, nil
}

// heard takes over the answer of a gateway, and reports whether it changes something. The caller holds the mutex.
func (p *Peers) heard(o *other, s state, sent time.Time) (changed bool) {
	o.answered = sent
	switch {
	case s.Leaving:
		changed = o.live != nil
		o.live = nil // what it has it answers
	case o.live == nil:
		if o.end == nil {
			p.log.Info("gateway answers", "gateway", o.name, "address", o.address)
		} else {
			o.end() // it was leaving, so this is another one of that name
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
	for f := range p.counts { // of which it decides
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

// SetCount sets how many owners a function has, at least 1. It has no effect if this gateway is not the first of them.
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

// ServeHTTP answers a ping, or a question of Ask.
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
	_ = json.NewEncoder(w).Encode(s) // fails if the other one has gone
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

// View is the state of the gateways at one moment. It never changes.
type View struct {
	Self    string // name of the gateway whose view it is
	Leaving bool   // it owns nothing any more
	names   []string
	peers   map[string]*Peer
	counts  map[string]int
}

// Rank returns the names of the gateways that serve, in the order in which they own a function. It is empty if this one is leaving and there is
// no other one.
func (v *View) Rank(function string) []string { return ownership.Rank(function, v.names) }

// Count returns how many owners a function has, at least 1, if so many gateways serve.
func (v *View) Count(function string) int { return max(v.counts[function], 1) }

// Peer returns another gateway that serves, or nil for this one and for those that do not.
func (v *View) Peer(name string) *Peer { return v.peers[name] }
