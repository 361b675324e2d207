package residency

import (
	"container/heap"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Turn bounds how long a function keeps a slice while another one waits for it. Zero fields have the defaults in the comments.
type Turn struct {
	Requests int           // that may begin from then on; 64
	For      time.Duration // from then on; 1 s
}

// Want is what is said of the requests of a function that wait elsewhere, such as in a gateway.
type Want struct {
	Function string
	Deadline time.Duration // of the first of them, on the clock of now
	Requests int           // how many wait; 0: none
}

// SetWant replaces what was said before of the requests of a function, and creates the instance if it has requests and there is none. A want
// stands for all of them: when Dispatch starts it, the function has a turn, for which Leases says how many requests may begin. A function has
// wants or requests by Enqueue, not both. Errors are *share.FieldError.
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
		r.feasible = (*before.nextHeap())[0].feasible // the same request: it was, when it came
	}
	heap.Push(&f.waiting.live, r)
	return nil
}

// Lease lets requests of a function begin, as its turn on a slice lasts. The first request of a turn may begin even if Until has passed.
type Lease struct {
	Turn     uint64 // of this node, also after Restore, no two turns have the same
	Function string
	Slice    string
	Requests int           // that may begin from when the lease first had this bound; 0: any number
	Until    time.Duration // no request begins from then on
}

// bound is the end of a turn for which another function waits.
type bound struct {
	turn  Turn
	since time.Duration // when that was noticed
}

// Leases returns the turns in which requests may begin now: of functions whose data are on the slice. A turn lasts as long as it is used while no
// other function needs the slice; the caller ends it with FinishTurn when all requests are answered that it let begin. Once another waits, it has as
// many requests and as long as the policy says, and no longer than the other one can wait without being late. Call it after Dispatch.
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
		if latest := n.firstRequest(other).LatestStart(); latest >= n.now { // one that is late already waits for the end of the turn
			l.Until = min(l.Until, max(n.now, latest-s.executionTime(f)))
		}
		leases = append(leases, l)
	}
	return leases
}

// FinishTurn records that a turn has ended, and reports whether it had not yet: that of a process that has ended is over already.
func (n *Node) FinishTurn(now time.Duration, turn uint64) bool {
	at := slices.IndexFunc(n.slices, func(s *slice) bool { return s.running != nil && s.turn == turn })
	return at >= 0 && n.Finish(now, n.slices[at].ID) == nil
}

// claims returns the busy slices that functions wait for, which no idle slice can serve, and the most urgent function of each. Each function claims
// one slice: that whose turn is to end first in any case, or else began first.
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
