package residency

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Source is where a function's data is when its request starts.
type Source string

const (
	Resident Source = "resident" // on the slice
	Host     Source = "host"     // in host memory (FF-50)
	Storage  Source = "storage"
)

// Start tells the caller to start a request on a shared slice: evict the listed functions, scrub free memory, load the function, execute.
// The slice is busy until Finish.
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
// The request with the least slack at the present time goes first. If the data of its function is on an idle slice, it runs there;
// otherwise the function is loaded to an idle slice, and the least recently used functions on it are evicted. A running request is never
// interrupted.
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

// startRequest starts a function's next request on the candidate's slice: it evicts, moves the function's data and marks the slice busy.
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
