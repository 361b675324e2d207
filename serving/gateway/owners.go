package gateway

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/gateway/peers"
	"github.com/gshare-dev/gshare/serving/rules/ownership"
)

// owners says which gateways serve a function, according to one view of the gateways. It never changes.
type owners struct {
	view   *peers.View
	ranked []string // all gateways, the owner first
	of     []string // the owner of each replica, if there are several owners: each of them gets a part of the requests in proportion to its replicas
}

// choose returns the gateway that is to serve a request, except those in failed, or nil if that is this one.
func (r *owners) choose(failed []string) *peers.Peer {
	if len(r.of) > 0 {
		if name := r.of[rand.IntN(len(r.of))]; !slices.Contains(failed, name) {
			return r.view.Peer(name)
		}
	}
	for _, name := range r.ranked {
		if !slices.Contains(failed, name) {
			return r.view.Peer(name)
		}
	}
	return nil
}

// view returns the present view of the gateways, or nil if this is the only one.
func (g *Gateway) view() *peers.View {
	if g.peers == nil {
		return nil
	}
	return g.peers.View()
}

// route returns where requests to a function go at present. It is called only if there are other gateways.
func (g *Gateway) route(f *function) *owners {
	view := g.view()
	if r := f.owners.Load(); r != nil && r.view == view {
		return r
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.share(f.name.String(), view)
	f.dispatch()
	return f.owners.Load()
}

// share divides the replicas of a function among its owners. A gateway that is not an owner may use all replicas: only gateways that do not know that
// yet send it requests. A gateway that is leaving keeps the replicas that it has. The caller holds the function's mutex.
func (s *servers) share(function string, view *peers.View) {
	defer func() { s.ready.Store(len(s.replicas) > 0) }()
	if view == nil {
		s.replicas = s.all
		return
	}
	r := &owners{view: view, ranked: view.Rank(function)}
	var of map[string]string
	if n := min(view.Count(function), len(r.ranked)); n > 1 {
		ids := make([]string, len(s.all))
		for i, replica := range s.all {
			ids[i] = replica.ID
		}
		of = ownership.Divide(r.ranked[:n], ids)
		for _, id := range ids {
			r.of = append(r.of, of[id])
		}
	}
	s.owners.Store(r)
	owns := slices.Contains(r.of, view.Self)
	s.replicas = nil
	for _, replica := range s.all {
		if !view.Leaving {
			replica.others = owns && of[replica.ID] != view.Self
		}
		if !replica.others {
			s.replicas = append(s.replicas, replica)
		}
	}
	if len(s.replicas) == 0 {
		s.replicas = s.all
	}
}

// maxRate is the number of requests per second above which a function gets one more owner. A gateway can pass on more than that, but it also has
// other functions, and requests to forward to its peers.
const maxRate = 15_000

// RunPeers takes part in the ownership of functions until ctx ends, if Config.Peers is set. Call it once.
func (g *Gateway) RunPeers(ctx context.Context) {
	if g.peers == nil {
		return
	}
	go g.peers.Run(ctx)
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			g.countOwners(time.Now())
		case <-ctx.Done():
			return
		}
	}
}

// all returns all functions.
func (g *Gateway) all() []*function {
	g.mu.RLock()
	defer g.mu.RUnlock()
	all := make([]*function, 0, len(g.functions))
	for _, f := range g.functions {
		all = append(all, f)
	}
	return all
}

// reroute applies a new view at once to the functions that have, or had, several owners. For the others it is soon enough to do so when a request comes.
func (g *Gateway) reroute() {
	view := g.view()
	for _, f := range g.all() {
		if r := f.owners.Load(); view.Count(f.name.String()) > 1 || r != nil && r.of != nil {
			g.route(f)
		}
	}
}

// countOwners sets the number of owners of the functions whose first owner is this gateway, as their rates require.
func (g *Gateway) countOwners(now time.Time) {
	view := g.view()
	for _, f := range g.all() {
		f.mu.Lock()
		rate, all, own := f.rate.perSecond(now), len(f.all), len(f.replicas)
		f.mu.Unlock()
		n := view.Count(f.name.String())
		if own > 0 && n > 1 {
			rate *= float64(all) / float64(own) // plus what the other owners get
		}
		if n > 1 || rate > maxRate {
			g.peers.SetCount(f.name.String(), ownership.Count(n, rate, maxRate))
		}
	}
}
