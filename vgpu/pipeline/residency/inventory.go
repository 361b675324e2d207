package residency

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/vgpu/pipeline"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// AddSlice gives the node a slice to share, with nothing in its memory.
func (n *Node) AddSlice(now time.Duration, s pipeline.Slice) error {
	n.advance(now)
	switch {
	case s.ID == "" || n.slice(s.ID) != nil:
		return share.Invalid("id", "%.64q is empty or shared already", s.ID)
	case s.Kind.Memory < 1 || s.Kind.Memory > share.MaxMemory:
		return share.Invalid("memory", "%d of slice %.64q is outside 1 to %d bytes", s.Kind.Memory, s.ID, share.MaxMemory)
	}
	n.slices = append(n.slices, &slice{Slice: s, free: s.Kind.Memory, ended: n.now})
	n.resize()
	return nil
}

// RemoveSlice takes back a slice on which nothing runs. What lay on it goes to host memory, as far as there is room. Its
// memory is to be scrubbed before another tenant gets it.
func (n *Node) RemoveSlice(now time.Duration, id string) error {
	n.advance(now)
	s := n.slice(id)
	switch {
	case s == nil:
		return share.Invalid("id", "slice %.64q is not shared", id)
	case s.running != nil:
		return share.Invalid("id", "slice %.64q runs %.64q", id, s.running.Name)
	}
	for _, f := range slices.Clone(s.residents) {
		n.evict(f)
	}
	n.remove(s)
	return nil
}

// LoseSlice forgets a slice that failed, with what lay on it. It returns the request that ran there, if there is one.
func (n *Node) LoseSlice(now time.Duration, id string) (Request, bool) {
	n.advance(now)
	s := n.slice(id)
	if s == nil {
		return Request{}, false
	}
	request, ran := s.request.Request, s.running != nil
	if ran {
		s.running.running = false
	}
	for _, f := range slices.Clone(s.residents) {
		n.drop(f)
		if f.leaving {
			n.end(f)
		}
	}
	n.remove(s)
	return request, ran
}

func (n *Node) remove(s *slice) {
	n.slices = slices.DeleteFunc(n.slices, func(other *slice) bool { return other == s })
	n.resize()
}

func (n *Node) resize() {
	n.resized, n.outcomes = n.now, outcomes{}
	for _, f := range n.order {
		n.measure(f)
	}
}

// measure finds the fastest shared slice for a function.
func (n *Node) measure(f *function) {
	f.runs, f.fastest = false, maxTime
	for _, s := range n.slices {
		if t := s.time(f); t > 0 {
			f.runs, f.fastest = true, min(f.fastest, t)
		}
	}
	if !f.runs {
		for _, t := range f.Times {
			f.fastest = min(f.fastest, t)
		}
	}
}

func (n *Node) slice(id string) *slice {
	at := slices.IndexFunc(n.slices, func(s *slice) bool { return s.ID == id })
	if at < 0 {
		return nil
	}
	return n.slices[at]
}

// evict moves the data of a function that does not run to host memory (FF-42).
func (n *Node) evict(f *function) {
	n.drop(f)
	n.host.put(f)
}

// drop takes the data of a function off its slice.
func (n *Node) drop(f *function) {
	if f.on != nil {
		f.on.remove(f)
		f.on = nil
	}
}
