package residency

import (
	"cmp"
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Source is where a function's data is when its request starts: on the slice, in host memory or in storage.
type Source string

const (
	Resident Source = "resident" // on the slice
	Host     Source = "host"     // in host memory
	Storage  Source = "storage"
)

// Start tells the caller to start a request on a shared slice: evict the listed functions, scrub free memory if Scrub is set, load the
// function, and execute the request. The slice is busy until Finish.
type Start struct {
	Request   Request
	Slice     string
	Source    Source
	Load      time.Duration // expected
	Execution time.Duration // expected
	Evicted   []string      // functions to evict first
	Scrub     bool          // scrub free memory before the load: it may contain another tenant's data (U22)
}

// Decision holds the requests that Dispatch starts and those that it refuses. They are no longer queued.
type Decision struct {
	Starts  []Start
	Refused []Request // cannot meet their deadline: reject them
}

// Dispatch assigns as many waiting requests as possible to idle slices. Call it after Enqueue and after Finish.
//
// The request with the least slack at the present time goes first. If the data of its function is on an idle slice, it runs there.
// Otherwise the function is loaded onto an idle slice, and the functions that were used least recently there are evicted. A running
// request is never interrupted.
func (n *Node) Dispatch(now time.Duration) Decision {
	n.advanceClock(now)
	var d Decision
	if !slices.ContainsFunc(n.slices, func(s *slice) bool { return s.running == nil }) {
		return d
	}
	n.active = slices.DeleteFunc(n.active, func(f *function) bool {
		f.active = f.waiting.len() > 0
		return !f.active
	})
	d.Refused = n.expireRequests()
	for {
		p, ok := n.nextStart()
		if !ok {
			return d
		}
		d.Starts = append(d.Starts, n.startRequest(p))
	}
}

// startRequest starts a function's next request on the candidate's slice: it evicts functions, moves the function's data and marks the
// slice busy.
func (n *Node) startRequest(p candidate) Start {
	f, s := p.function, p.slice
	request := f.waiting.pop()
	start := Start{Request: request.Request, Slice: s.ID, Source: p.source, Load: p.load, Execution: s.executionTime(f)}
	for _, v := range p.victims {
		n.evict(v)
		start.Evicted = append(start.Evicted, v.Name)
	}
	if f.on != s {
		n.unload(f)
		n.host.remove(f)
		start.Scrub = s.add(f)
		f.on = s
	}
	f.running = true
	s.running, s.request, s.started, s.loaded = f, request, n.now, n.now+p.load
	s.until = s.loaded + start.Execution
	return start
}

// Finish records that the request on a slice has ended. Errors are *share.FieldError.
func (n *Node) Finish(now time.Duration, id string) error {
	n.advanceClock(now)
	s := n.findSlice(id)
	if s == nil || s.running == nil {
		return share.Invalid("slice", "nothing runs on %.64q", id)
	}
	f := s.running
	s.meter.Add(s.started, n.now)
	f.meter.Add(s.loaded, n.now)
	n.outcomes.add(n.now, n.policy.Window, s.request.feasible && n.now > s.request.Deadline)
	s.running, s.ended, f.running, f.used = nil, n.now, false, n.now
	if f.terminating {
		n.deleteInstance(f)
	}
	return nil
}

// candidate is an idle slice on which a function's next request could start now, with the cost of doing so: the load time and the
// functions to evict.
type candidate struct {
	function *function
	slice    *slice
	source   Source
	load     time.Duration
	victims  []*function
}

// bestCandidate returns the idle slice on which a function should run next: the slice that holds its data, or the best one to load it to.
// If the slice that holds its data is busy, the function moves only if it can start earlier elsewhere. It returns false if there is none.
func (n *Node) bestCandidate(f *function) (candidate, bool) {
	if f.on != nil && f.on.running == nil {
		return candidate{function: f, slice: f.on, source: Resident}, true
	}
	load, source := n.loadTime(f)
	if f.on != nil && n.now+load >= f.on.until {
		return candidate{}, false
	}
	var best candidate
	for _, s := range n.slices {
		if s.running != nil || s.executionTime(f) == 0 { // U11
			continue
		}
		p := candidate{f, s, source, load, s.victims(f)}
		if best.slice == nil || n.isBetter(&p, &best) {
			best = p
		}
	}
	return best, best.slice != nil
}

// isBetter reports whether candidate a is preferred to b. The criteria, in this order: it meets the deadline; it evicts no function,
// or functions used less recently; its slice is smaller. The paper ignores the deadline here (docs/adr/0018).
func (n *Node) isBetter(a, b *candidate) bool {
	return cmp.Or(
		compareBools(n.isLate(a), n.isLate(b)),
		cmp.Compare(lastUsed(a.victims), lastUsed(b.victims)),
		a.slice.Kind.Compare(b.slice.Kind), // U9
	) < 0
}

// compareBools compares two booleans for sorting; false is less than true.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// isLate reports whether the function's next request would miss its deadline on the candidate's slice.
func (n *Node) isLate(p *candidate) bool {
	return n.now+p.load+p.slice.executionTime(p.function) > (*p.function.waiting.nextHeap())[0].Deadline
}

// lastUsed returns the time of the last use of the most recently used function to evict, or a negative time if there is none.
func lastUsed(victims []*function) time.Duration {
	if len(victims) == 0 {
		return -1
	}
	return victims[len(victims)-1].used
}
