package residency

import (
	"slices"
	"time"

	"github.com/gshare-dev/gshare/serving/rules/pipeline"
	"github.com/gshare-dev/gshare/vgpu/share"
)

// AddSlice adds a slice, with empty memory, to those that functions share. Errors are *share.FieldError.
func (n *Node) AddSlice(now time.Duration, s pipeline.Slice) error {
	n.advanceClock(now)
	switch {
	case s.ID == "" || n.findSlice(s.ID) != nil:
		return share.Invalid("id", "%.64q is empty or shared already", s.ID)
	case s.Kind.Memory < 1 || s.Kind.Memory > share.MaxMemory:
		return share.Invalid("memory", "%d of slice %.64q is outside 1 to %d bytes", s.Kind.Memory, s.ID, share.MaxMemory)
	}
	n.slices = append(n.slices, &slice{Slice: s, free: s.Kind.Memory, ended: n.now})
	n.slicesChanged()
	return nil
}

// RemoveSlice removes a shared slice on which nothing runs. The functions on it are evicted to host memory, as far as its limit allows.
// The caller scrubs the slice's memory before another tenant uses it. Errors are *share.FieldError.
func (n *Node) RemoveSlice(now time.Duration, id string) error {
	n.advanceClock(now)
	s := n.findSlice(id)
	switch {
	case s == nil:
		return share.Invalid("id", "slice %.64q is not shared", id)
	case s.running != nil:
		return share.Invalid("id", "slice %.64q runs %.64q", id, s.running.Name)
	}
	for _, f := range slices.Clone(s.residents) {
		n.evict(f)
	}
	n.deleteSlice(s)
	return nil
}

// LoseSlice removes a failed slice and the data of the functions on it. It returns the request that ran there, and false if there was
// none.
func (n *Node) LoseSlice(now time.Duration, id string) (Request, bool) {
	n.advanceClock(now)
	s := n.findSlice(id)
	if s == nil {
		return Request{}, false
	}
	request, ran := s.request.Request, s.running != nil
	if ran {
		s.running.running = false
	}
	for _, f := range slices.Clone(s.residents) {
		n.unload(f)
		if f.terminating {
			n.deleteInstance(f)
		}
	}
	n.deleteSlice(s)
	return request, ran
}

func (n *Node) deleteSlice(s *slice) {
	n.slices = slices.DeleteFunc(n.slices, func(other *slice) bool { return other == s })
	n.slicesChanged()
}

// slicesChanged updates the state that depends on the set of slices: it recomputes each function's fastest time and restarts the overload
// measurement.
func (n *Node) slicesChanged() {
	n.resized, n.outcomes = n.now, deadlineOutcomes{}
	for _, f := range n.order {
		n.updateFastest(f)
	}
}

// updateFastest recomputes whether a function can run on some shared slice, and its execution time on the fastest one.
func (n *Node) updateFastest(f *function) {
	f.runs, f.fastest = false, maxTime
	for _, s := range n.slices {
		if t := s.executionTime(f); t > 0 {
			f.runs, f.fastest = true, min(f.fastest, t)
		}
	}
	if !f.runs {
		for _, t := range f.Times {
			f.fastest = min(f.fastest, t)
		}
	}
}

// findSlice returns the slice with the given ID, or nil.
func (n *Node) findSlice(id string) *slice {
	at := slices.IndexFunc(n.slices, func(s *slice) bool { return s.ID == id })
	if at < 0 {
		return nil
	}
	return n.slices[at]
}

// evict moves the data of a function that is not running from its slice to host memory.
func (n *Node) evict(f *function) {
	n.unload(f)
	n.host.add(f)
}

// unload removes the data of a function from the slice that holds it, if any.
func (n *Node) unload(f *function) {
	if f.on != nil {
		f.on.remove(f)
		f.on = nil
	}
}

// hostCache holds the data of evicted functions in host memory, up to a limit. A function's data is in the cache or on a slice, never in
// both, so that each byte is counted once.
type hostCache struct {
	limit, used share.Bytes
	held        []*function // functions whose data is here, in no particular order
}

func (h *hostCache) has(f *function) bool { return slices.Contains(h.held, f) }

// add puts the data of a function into host memory. It first removes the data of other functions, the least recently used first,
// until the new data fits. Data larger than the limit is not kept.
func (h *hostCache) add(f *function) {
	if f.Memory > h.limit || h.has(f) {
		return
	}
	for h.used+f.Memory > h.limit {
		h.remove(slices.MinFunc(h.held, compareLastUse))
	}
	h.held, h.used = append(h.held, f), h.used+f.Memory
}

// remove deletes the data of a function from host memory, if it is there.
func (h *hostCache) remove(f *function) {
	if at := slices.Index(h.held, f); at >= 0 {
		h.held, h.used = slices.Delete(h.held, at, at+1), h.used-f.Memory
	}
}

// slice is one shared slice. The fields from running to until describe the request that runs on it.
type slice struct {
	pipeline.Slice
	free      share.Bytes
	residents []*function // functions whose data is on the slice, in no particular order
	stale     []string    // tenants whose data may still be in free memory

	running *function
	request queuedRequest
	started time.Duration // when running took the slice; its load comes after that
	loaded  time.Duration // expected end of its load
	until   time.Duration // expected end of the request
	ended   time.Duration // when the last request ended
	meter   Meter
}

// executionTime returns the time that one request of a function takes on the slice; 0 if the function cannot run there.
func (s *slice) executionTime(f *function) time.Duration {
	if f.Memory > s.Kind.Memory {
		return 0
	}
	return f.Times[s.Kind.Name]
}

// victims returns the functions to evict from the slice so that the given one fits, the least recently used first.
func (s *slice) victims(f *function) []*function {
	missing := f.Memory - s.free
	if missing <= 0 {
		return nil
	}
	victims := slices.SortedFunc(slices.Values(s.residents), compareLastUse)
	for i, v := range victims {
		if missing -= v.Memory; missing <= 0 {
			return victims[:i+1]
		}
	}
	return victims
}

// remove frees the memory of a function on the slice. The data is not scrubbed: the memory counts as stale until another tenant needs it.
func (s *slice) remove(f *function) {
	s.free += f.Memory
	s.residents = slices.DeleteFunc(s.residents, func(other *function) bool { return other == f })
	if !slices.Contains(s.stale, f.Tenant) {
		s.stale = append(s.stale, f.Tenant)
	}
}

// add makes a function resident on a slice that has enough free memory. It reports whether that memory must be scrubbed first, because it
// may contain data of another tenant.
func (s *slice) add(f *function) (scrub bool) {
	scrub = slices.ContainsFunc(s.stale, func(tenant string) bool { return tenant != f.Tenant }) // U22
	if scrub {
		s.stale = nil
	}
	s.free -= f.Memory
	s.residents = append(s.residents, f)
	return scrub
}
