package residency

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/share"
)

// Source is where a function's data come from when it starts.
type Source string

const (
	Resident Source = "resident" // they lie on the slice
	Host     Source = "host"     // in host memory (FF-50)
	Storage  Source = "storage"
)

// Start is a request to run now: evict, scrub, load, execute. The slice is taken until Finish is called.
type Start struct {
	Request   Request
	Slice     string
	Source    Source
	Load      time.Duration // expected
	Execution time.Duration // expected
	Evicted   []string      // functions that leave the slice first
	Scrub     bool          // free memory of the slice before the load: another tenant's data may be in it (U22)
}

// Decision is what Dispatch wants done. Its requests have left the queue.
type Decision struct {
	Starts  []Start
	Refused []Request // will be late whatever is done: answer at once
}

// Dispatch starts requests on idle slices, as many as have a place. Call it when requests were taken in and when one has
// finished.
//
// The request of least slack goes first (FF-48), computed now (U13). If its function lies on an idle slice it runs there;
// else its data are loaded to one, where the least recently used residents make room for it (FF-47). Nothing that runs is
// ever touched (U11).
func (n *Node) Dispatch(now time.Duration) Decision {
	n.advance(now)
	var d Decision
	if !slices.ContainsFunc(n.slices, func(s *slice) bool { return s.running == nil }) {
		return d
	}
	n.active = slices.DeleteFunc(n.active, func(f *function) bool {
		f.active = f.waiting.len() > 0
		return !f.active
	})
	d.Refused = n.sortOut()
	for {
		p, ok := n.next()
		if !ok {
			return d
		}
		d.Starts = append(d.Starts, n.start(p))
	}
}

// start carries out a place in the node's state.
func (n *Node) start(p place) Start {
	f, s := p.function, p.slice
	request := f.waiting.pop()
	start := Start{Request: request.Request, Slice: s.ID, Source: p.source, Load: p.load, Execution: s.time(f)}
	for _, v := range p.victims {
		n.evict(v)
		start.Evicted = append(start.Evicted, v.Name)
	}
	if f.on != s {
		n.drop(f)
		n.host.take(f)
		start.Scrub = s.add(f)
		f.on = s
	}
	f.running = true
	s.running, s.request, s.started, s.loaded = f, request, n.now, n.now+p.load
	s.until = s.loaded + start.Execution
	return start
}

// Finish says that the request that ran on a slice has ended. Errors are *share.FieldError.
func (n *Node) Finish(now time.Duration, id string) error {
	n.advance(now)
	s := n.slice(id)
	if s == nil || s.running == nil {
		return share.Invalid("slice", "nothing runs on %.64q", id)
	}
	f := s.running
	s.meter.Add(s.started, n.now)
	f.meter.Add(s.loaded, n.now)
	n.outcomes.add(n.now, n.policy.Window, s.request.winnable && n.now > s.request.Deadline)
	s.running, s.ended, f.running, f.used = nil, n.now, false, n.now
	if f.leaving {
		n.end(f)
	}
	return nil
}
