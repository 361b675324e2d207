package residency

import (
	"container/heap"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Turn limits how long a function keeps a slice once another function waits for it. Fields that are zero take the defaults in the comments.
type Turn struct {
	Requests int           // number that may begin once another function waits; default 64
	For      time.Duration // time after another function begins to wait; default 1 s
}

// Want describes the requests of a function that wait elsewhere, such as in a gateway.
type Want struct {
	Function string
	Deadline time.Duration // of the most urgent one, on the same clock as the argument now
	Requests int           // number of waiting requests; 0 for none
}

// SetWant replaces the previous Want of a function. If w has requests and the function has no instance, it creates one. A Want represents all
// of the function's waiting requests: when Dispatch starts it, the function gets a turn, and Leases says how many requests may begin in it. A
// function uses either wants or Enqueue, not both. Errors are *share.FieldError.
func (n *Node) SetWant(now time.Duration, w Want) error {
	n.advanceClock(now)
	f, err := n.functionFor(w.Function, w.Deadline)
	switch {
	case err != nil:
		return err
	case w.Requests < 0:
		return share.Invalid("requests", "%d of %.64q is negative", w.Requests, w.Function)
	}
	before := f.waiting
	f.waiting = requestQueue{}
	if w.Requests == 0 {
		return nil
	}
	n.keepInstance(f)
	r := queuedRequest{Request: Request{ID: uint64(f.index), Function: f.Name, Deadline: w.Deadline}, want: true}
	r.feasible = n.isFeasible(f, w.Deadline)
	if before.len() > 0 && (*before.nextHeap())[0].Deadline == w.Deadline {
		r.feasible = (*before.nextHeap())[0].feasible // it is the same request, so what held at its arrival still counts
	}
	heap.Push(&f.waiting.live, r)
	return nil
}

// Lease permits requests of a function to begin during its turn on a slice. The first request of a turn may begin even after Until.
type Lease struct {
	Turn     uint64 // unique on this node, even after Restore
	Function string
	Slice    string
	Requests int           // number that may begin counted from when the lease first had this limit; 0: any number
	Until    time.Duration // time from which on no further request begins
}

// bound is the limit of a turn while another function waits for the slice.
type bound struct {
	turn  Turn
	since time.Duration // when the waiting function was first noticed
}

// Leases returns the turns in which requests may begin now: those of functions whose data is on the slice. While no other function needs the slice,
// a turn lasts as long as it is used; the caller ends it with FinishTurn when all requests that began in it are answered. Once another function
// waits, the policy limits the turn's further requests and time, and the turn ends early enough that the waiting function is not late if that is
// possible. Call it after Dispatch.
func (n *Node) Leases(now time.Duration) []Lease {
	n.advanceClock(now)
	claims := n.claims()
	var leases []Lease
	for _, s := range n.slices {
		f := s.running
		if f == nil || f.place.slice != s || f.place.state != resident {
			continue
		}
		l := Lease{Turn: s.turn, Function: f.Name, Slice: s.ID, Until: maxInstant}
		other := claims[s]
		if other == nil {
			s.bound = nil
			leases = append(leases, l)
			continue
		}
		if s.bound == nil {
			s.bound = &bound{n.policy.Turn, n.now}
		}
		l.Requests, l.Until = s.bound.turn.Requests, s.bound.since+s.bound.turn.For
		if latest := n.firstRequest(other).LatestStart(); latest >= n.now { // a function that is late already waits for the end of the turn
			l.Until = min(l.Until, max(n.now, latest-s.executionTime(f)))
		}
		leases = append(leases, l)
	}
	return leases
}

// FinishTurn records that a turn has ended. It reports false if the turn was over already, for example because its process has ended.
func (n *Node) FinishTurn(now time.Duration, turn uint64) bool {
	at := slices.IndexFunc(n.slices, func(s *slice) bool { return s.running != nil && s.turn == turn })
	return at >= 0 && n.Finish(now, n.slices[at].ID) == nil
}

// claims returns the busy slices for which functions wait that no idle slice can serve, each with the most urgent such function. Each function
// claims one slice: preferably one whose turn is bounded already, and among equals the one whose turn began first.
func (n *Node) claims() map[*slice]*function {
	claims := map[*slice]*function{}
	for _, f := range n.pendingFunctions() {
		if _, idle := n.bestCandidate(f); idle {
			continue
		}
		var best *slice
		for _, s := range n.slices {
			if s.running == nil || claims[s] != nil || s.executionTime(f) == 0 || f.on != nil && f.on != s {
				continue
			}
			if best == nil || (s.bound != nil) != (best.bound != nil) && s.bound != nil || (s.bound != nil) == (best.bound != nil) && s.started < best.started {
				best = s
			}
		}
		if best != nil {
			claims[best] = f
		}
	}
	return claims
}
